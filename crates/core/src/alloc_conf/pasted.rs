//! Pasted settings: what people have at hand is a line of a shell, a script or a container file.

/// The names under which PyTorch looks for its settings.
const NAMES: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// The value in a line such as `export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"`; a text without one of
/// PyTorch's names is the value itself, in quotes or not.
///
/// ```
/// use gmlake_core::alloc_conf::pasted;
/// assert_eq!(pasted("export PYTORCH_ALLOC_CONF='a:1, b:2'"), "a:1, b:2");
/// assert_eq!(pasted("PYTORCH_CUDA_ALLOC_CONF=a:1 python train.py"), "a:1");
/// assert_eq!(pasted("a:1"), "a:1");
/// ```
pub fn pasted(text: &str) -> &str {
    let found = NAMES.iter().find_map(|name| text.split_once(name).map(|(_, after)| after));
    let Some(after) = found else { return unquoted(text.trim()) };
    let value = after.trim_start_matches(|c: char| c.is_whitespace() || "\"'])=:,".contains(c));
    // The quote in front of the value was passed over, if there is one.
    let before = after[..after.len() - value.len()].trim_end();
    match before.chars().next_back().filter(|quote| "\"'".contains(*quote)) {
        Some(quote) => value.split(quote).next().unwrap_or(value).trim(),
        None => first_words(value),
    }
}

/// The text without quotes around it.
fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(text).trim()
}

/// A value without quotes ends where a word does, unless a list goes on behind it.
fn first_words(value: &str) -> &str {
    let is_end = |&(at, c): &(usize, char)| {
        let goes_on = value[..at].trim_end().ends_with([',', ':', '[']);
        let goes_on = goes_on || value[at..].trim_start().starts_with([',', ':', ']']);
        c == ';' || c == '&' || c.is_whitespace() && !goes_on
    };
    let end = value.char_indices().find(is_end).map_or(value.len(), |(at, _)| at);
    value[..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_it_has_the_same_value() {
        let value = "expandable_segments:True,max_split_size_mb:128";
        for name in NAMES {
            for line in [
                format!("{name}={value}"),
                format!("export {name}={value}"),
                format!("export {name}=\"{value}\""),
                format!("export {name}='{value}'  # less fragmentation"),
                format!("set {name}={value}"),
                format!("$env:{name}=\"{value}\""),
                format!("ENV {name} {value}"),
                format!("{name}: \"{value}\""),
                format!("{name}={value} python train.py --lr 1e-4"),
                format!("{name}={value}; python train.py"),
                format!("os.environ[\"{name}\"] = \"{value}\""),
                format!("os.environ['{name}']='{value}'"),
                format!("os.environ.setdefault('{name}', '{value}')"),
                format!("-e {name}={value}"),
            ] {
                assert_eq!(pasted(&line), value, "{line}");
            }
        }
    }

    #[test]
    fn a_value_alone_stays_as_it_is_but_for_quotes() {
        for text in ["a:1", " a:1 ", "\"a:1\"", "'a:1'", "\" a:1 \""] {
            assert_eq!(pasted(text), "a:1", "{text}");
        }
        assert_eq!(pasted(""), "");
        assert_eq!(pasted("PYTORCH_ALLOC_CONF="), "");
        assert_eq!(pasted("export PYTORCH_ALLOC_CONF=\"\""), "");
        let spaced = "PYTORCH_ALLOC_CONF=a:1 , b:[ 256:1, >:2 ] python x.py";
        assert_eq!(pasted(spaced), "a:1 , b:[ 256:1, >:2 ]");
    }
}
