//! What the client has to know of JSON: where the values of an object begin and end (clients/PROTOCOL.md, "Control
//! requests": pages of clients and sources). It trusts the daemon to send JSON.

use crate::{Error, Result};

/// The value of a member of an object, as text.
pub(crate) fn member<'a>(object: &'a str, name: &str) -> Result<&'a str> {
    find(object, name).ok_or_else(|| Error::protocol(format!("the daemon sent JSON without {name}")))
}

fn find<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = object.trim_start().strip_prefix('{')?.trim_start();
    while rest.starts_with('"') {
        let (key, after) = rest.split_at(end(rest)?);
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        let (value, after) = value.split_at(end(value)?);
        if key[1..key.len() - 1] == *name {
            return Some(value.trim_end());
        }
        rest = after.trim_start().strip_prefix(',')?.trim_start();
    }
    None
}

/// Where the first value of a text ends.
fn end(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' | b',' if depth == 0 => return Some(index),
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && !quoted && matches!(byte, b'"' | b']' | b'}') {
            return Some(index + 1);
        }
    }
    (depth == 0 && !quoted).then_some(text.len())
}

/// The members of an array without its brackets.
pub(crate) fn inside(array: &str) -> Result<&str> {
    let inside = array.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.map(str::trim).ok_or_else(|| Error::protocol("the daemon sent JSON that is no array"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_object_are_found() {
        let page = r#"{"a\"b": "}", "clients": [{"name": "x,]\\", "n": [1, 2]}, {}], "next": 17, "last": null}"#;
        assert_eq!(member(page, "clients").unwrap(), r#"[{"name": "x,]\\", "n": [1, 2]}, {}]"#);
        assert_eq!(member(page, "next").unwrap(), "17");
        assert_eq!(member(page, "last").unwrap(), "null");
        assert_eq!(inside("[ 1, 2 ]").unwrap(), "1, 2");
        for wrong in ["", "{", "[]", "{}", "{\"next\"}", "{\"other\": \"", "{\"next\": [1"] {
            assert_eq!(member(wrong, "next").unwrap_err().code().as_str(), "protocol", "{wrong}");
        }
    }
}
