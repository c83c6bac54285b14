//! Derive macros of `ackwright-sdk`; their documentation is on the traits there.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Token, parse_macro_input};

/// Derives `Row`, and `Stored` where `#[row(table = "..")]` is given.
#[proc_macro_derive(Row, attributes(row))]
pub fn derive_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Derives `FromRow`.
#[proc_macro_derive(FromRow, attributes(row))]
pub fn derive_from_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    from_row(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn row(input: &DeriveInput) -> Result<TokenStream, Error> {
    let columns = columns(input)?;
    let table = TableAttributes::parse(input, &columns)?;
    let (name, (generics, arguments, bounds)) = (&input.ident, input.generics.split_for_impl());
    let fields = columns.iter().map(|Column { field, column, .. }| {
        quote! {
            ::ackwright_sdk::Field {
                name: ::std::string::String::from(#column),
                value: ::ackwright_sdk::column::ToValue::to_value(&self.#field),
            }
        }
    });
    let stored = table.table.as_ref().map(|table_name| {
        let TableAttributes { key, version, .. } = &table;
        let version = match version {
            Some(version) => quote!(::std::option::Option::Some(#version)),
            None => quote!(::std::option::Option::None),
        };
        quote! {
            impl #generics ::ackwright_sdk::Stored for #name #arguments #bounds {
                const TABLE: &'static str = #table_name;
                const KEY: &'static [&'static str] = &[#(#key),*];
                const VERSION: ::std::option::Option<&'static str> = #version;
            }
        }
    });
    Ok(quote! {
        impl #generics ::ackwright_sdk::Row for #name #arguments #bounds {
            fn fields(&self) -> ::std::vec::Vec<::ackwright_sdk::Field> {
                ::std::vec![#(#fields),*]
            }
        }
        #stored
    })
}

fn from_row(input: &DeriveInput) -> Result<TokenStream, Error> {
    let columns = columns(input)?;
    let (name, (generics, arguments, bounds)) = (&input.ident, input.generics.split_for_impl());
    let fields = columns.iter().map(|Column { field, column, .. }| quote!(#field: row.take(#column)?));
    Ok(quote! {
        impl #generics ::ackwright_sdk::FromRow for #name #arguments #bounds {
            fn from_row(mut row: ::ackwright_sdk::row::Fields) -> ::std::result::Result<Self, ::std::string::String> {
                ::std::result::Result::Ok(Self { #(#fields),* })
            }
        }
    })
}

struct Column<'a> {
    field: &'a syn::Ident,
    column: String,
}

/// The named fields of the struct with their columns.
fn columns(input: &DeriveInput) -> Result<Vec<Column<'_>>, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "a row is a struct with named fields"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "a row is a struct with named fields"));
    };
    let mut columns: Vec<Column<'_>> = Vec::new();
    for field in &fields.named {
        let Some(ident) = &field.ident else { continue };
        // A raw identifier names the column that it stands for: `r#type` is column `type`.
        let mut column = ident.to_string().trim_start_matches("r#").to_owned();
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("row")) {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("column") {
                    return Err(meta.error("a field takes #[row(column = \"..\")]"));
                }
                column = meta.value()?.parse::<LitStr>()?.value();
                Ok(())
            })?;
        }
        if columns.iter().any(|known| known.column == column) {
            return Err(Error::new_spanned(ident, format!("column {column} is named twice")));
        }
        columns.push(Column { field: ident, column });
    }
    Ok(columns)
}

#[derive(Default)]
struct TableAttributes {
    table: Option<String>,
    key: Vec<String>,
    version: Option<String>,
}

impl TableAttributes {
    fn parse(input: &DeriveInput, columns: &[Column<'_>]) -> Result<Self, Error> {
        let known = |name: &LitStr| {
            if columns.iter().any(|c| c.column == name.value()) {
                Ok(name.value())
            } else {
                Err(Error::new_spanned(name, format!("the struct has no column {}", name.value())))
            }
        };
        let mut attributes = TableAttributes::default();
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("row")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("table") {
                    attributes.table = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if meta.path.is_ident("version") {
                    attributes.version = Some(known(&meta.value()?.parse::<LitStr>()?)?);
                } else if meta.path.is_ident("key") {
                    let list;
                    syn::parenthesized!(list in meta.input);
                    for name in Punctuated::<LitStr, Token![,]>::parse_terminated(&list)? {
                        attributes.key.push(known(&name)?);
                    }
                } else {
                    return Err(meta.error("a row takes table = \"..\", key(\"..\") and version = \"..\""));
                }
                Ok(())
            })?;
        }
        if attributes.table.is_none() && (!attributes.key.is_empty() || attributes.version.is_some()) {
            return Err(Error::new_spanned(&input.ident, "key and version belong to a table: add table = \"..\""));
        }
        Ok(attributes)
    }
}
