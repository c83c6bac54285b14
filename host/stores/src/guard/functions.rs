//! Functions that plugin SQL may call: pure ones only.
//!
//! An allow-list, since a list of bad functions is never complete: what reads a clock, draws a number, sleeps,
//! locks, opens a file or a connection, runs text as SQL or changes a setting is simply not here.

use super::Dialect;

/// Pure functions that every supported database has, or that only one has and the others refuse themselves.
const COMMON: &[&str] = &[
    // Aggregates and windows
    "avg",
    "bit_and",
    "bit_or",
    "bool_and",
    "bool_or",
    "count",
    "cume_dist",
    "dense_rank",
    "every",
    "first_value",
    "group_concat",
    "lag",
    "last_value",
    "lead",
    "max",
    "min",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "total",
    "var_pop",
    "var_samp",
    "variance",
    // Numbers
    "abs",
    "acos",
    "asin",
    "atan",
    "atan2",
    "cbrt",
    "ceil",
    "ceiling",
    "cos",
    "cot",
    "degrees",
    "div",
    "exp",
    "floor",
    "gcd",
    "greatest",
    "lcm",
    "least",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pi",
    "pow",
    "power",
    "radians",
    "round",
    "sign",
    "sin",
    "sqrt",
    "tan",
    "trunc",
    "truncate",
    "width_bucket",
    // Text and bytes
    "ascii",
    "bit_length",
    "btrim",
    "char",
    "char_length",
    "character_length",
    "chr",
    "concat",
    "concat_ws",
    "decode",
    "encode",
    "format",
    "hex",
    "initcap",
    "instr",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "octet_length",
    "overlay",
    "position",
    "printf",
    "quote",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "regexp_split_to_array",
    "regexp_substr",
    "repeat",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "split_part",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "to_hex",
    "translate",
    "trim",
    "unhex",
    "unicode",
    "upper",
    // Conditions
    "coalesce",
    "ifnull",
    "iif",
    "nullif",
    "num_nonnulls",
    "num_nulls",
    "typeof",
    // JSON
    "json",
    "json_array",
    "json_array_length",
    "json_build_array",
    "json_build_object",
    "json_extract",
    "json_extract_path",
    "json_extract_path_text",
    "json_group_array",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_patch",
    "json_quote",
    "json_remove",
    "json_replace",
    "json_set",
    "json_strip_nulls",
    "json_type",
    "json_typeof",
    "json_valid",
];

const POSTGRES: &[&str] = &[
    "array_agg",
    "array_append",
    "array_cat",
    "array_dims",
    "array_length",
    "array_lower",
    "array_ndims",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_replace",
    "array_to_json",
    "array_to_string",
    "array_upper",
    "cardinality",
    "convert_from",
    "convert_to",
    "corr",
    "covar_pop",
    "covar_samp",
    "date_bin",
    "date_part",
    "date_trunc",
    "factorial",
    "get_bit",
    "get_byte",
    "isempty",
    "isfinite",
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "jsonb_array_length",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_extract_path",
    "jsonb_extract_path_text",
    "jsonb_insert",
    "jsonb_object",
    "jsonb_object_agg",
    "jsonb_path_exists",
    "jsonb_path_match",
    "jsonb_path_query_array",
    "jsonb_path_query_first",
    "jsonb_pretty",
    "jsonb_set",
    "jsonb_strip_nulls",
    "jsonb_typeof",
    "justify_days",
    "justify_hours",
    "justify_interval",
    "lower_inc",
    "make_date",
    "make_interval",
    "make_time",
    "make_timestamp",
    "mode",
    "normalize",
    "percentile_cont",
    "percentile_disc",
    "row_to_json",
    "scale",
    "set_bit",
    "set_byte",
    "string_to_array",
    "to_char",
    "to_date",
    "to_json",
    "to_jsonb",
    "to_number",
    "to_timestamp",
    "trim_array",
    "trim_scale",
    "upper_inc",
];

const SQLITE: &[&str] = &["likely", "likelihood", "sqrt", "unlikely", "zeroblob", "soundex", "glob", "like", "nullif"];

const MYSQL: &[&str] =
    &["json_unquote", "json_contains", "json_keys", "json_arrayagg", "json_objectagg", "conv", "crc32"];

/// Functions that stand where a table stands.
const TABLES: &[(Dialect, &[&str])] = &[
    (
        Dialect::Postgres,
        &[
            "generate_series",
            "generate_subscripts",
            "json_array_elements",
            "json_array_elements_text",
            "json_each",
            "json_each_text",
            "json_object_keys",
            "json_populate_recordset",
            "json_to_recordset",
            "jsonb_array_elements",
            "jsonb_array_elements_text",
            "jsonb_each",
            "jsonb_each_text",
            "jsonb_object_keys",
            "jsonb_path_query",
            "jsonb_populate_recordset",
            "jsonb_to_recordset",
            "regexp_matches",
            "regexp_split_to_table",
            "string_to_table",
            "unnest",
        ],
    ),
    (Dialect::Sqlite, &["json_each", "json_tree", "generate_series"]),
    (Dialect::MySql, &[]),
];

/// `name` is folded to lower case.
pub(super) fn allowed(dialect: Dialect, name: &str) -> bool {
    let own = match dialect {
        Dialect::Postgres => POSTGRES,
        Dialect::Sqlite => SQLITE,
        Dialect::MySql => MYSQL,
    };
    COMMON.contains(&name) || own.contains(&name) || allowed_as_table(dialect, name)
}

/// `name` is folded to lower case.
pub(super) fn allowed_as_table(dialect: Dialect, name: &str) -> bool {
    TABLES.iter().any(|(of, names)| *of == dialect && names.contains(&name))
}

/// What to do instead, for functions that people reach for.
pub(super) fn hint(name: &str) -> &'static str {
    match name {
        "now"
        | "current_timestamp"
        | "current_date"
        | "current_time"
        | "localtime"
        | "localtimestamp"
        | "clock_timestamp"
        | "statement_timestamp"
        | "transaction_timestamp"
        | "timeofday"
        | "age"
        | "date"
        | "datetime"
        | "time"
        | "julianday"
        | "strftime"
        | "unixepoch"
        | "curdate"
        | "sysdate" => "; a handler runs again with the same result, so pass the message's time as a parameter",
        "random" | "rand" | "gen_random_uuid" | "uuid_generate_v4" | "randomblob" | "uuid" => {
            "; a handler runs again with the same result, so draw it in the handler and pass it as a parameter"
        }
        "nextval" | "setval" | "lastval" | "currval" | "last_insert_rowid" | "last_insert_id" => {
            "; sequences move outside of transactions, so leave the column out and let its default fill it"
        }
        _ => "",
    }
}
