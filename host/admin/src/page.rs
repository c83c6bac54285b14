//! The dashboard: three files in the program, which read the API and nothing else.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

pub async fn html() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("page/dashboard.html"))
}

pub async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page/dashboard.js"))
}

pub async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page/dashboard.css"))
}
