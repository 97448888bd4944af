//! `GMLAKE_CONF`: which allocator, its options, and those of the plug-in, as `name=value,name=value`.

use gmlake_allocators::allocator::{Environment, Options, Role, Spec, by_default, find};

/// The allocators to take when none is named: the first that there is.
pub const DEFAULT_ALLOCATOR: &[&str] = &["lake", "gmlake"];

/// Events that are kept when recording is on without a number: 320 MB.
const HISTORY: usize = 10_000_000;

/// What the user wants.
#[derive(Debug, Clone)]
pub struct Conf {
    /// The text that this was read from.
    pub text: String,
    /// The allocator.
    pub spec: &'static Spec,
    /// Its options.
    pub options: Options,
    /// Whether freed memory is filled with a pattern, which is looked for when it is handed out again.
    pub poison: bool,
    /// Events to keep for a snapshot; 0: none.
    pub history: usize,
}

impl Conf {
    /// Reads `allocator=lake,fragment_limit=2MiB,record=on,poison=off`; any part may be missing.
    ///
    /// # Errors
    /// Says what is wrong, and what there is. The allocator's options are tried by making one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Options::default();
        let (mut name, mut poison, mut history) = (None, false, 0);
        for piece in text.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            let no_value = || format!("{piece:?} is not of the form name=value");
            let (key, value) = piece.split_once('=').ok_or_else(no_value)?;
            match (key.trim(), value.trim()) {
                ("allocator", value) => name = Some(value),
                ("poison", value) => poison = switch("poison", value)?,
                ("record", value) => history = entries(value)?,
                (key, value) => options.set(key, value),
            }
        }
        let spec = match name {
            Some(name) => usable().find(|spec| spec.name == name).ok_or_else(|| unknown(name))?,
            None => DEFAULT_ALLOCATOR.iter().find_map(|name| find(name)).expect("one is listed"),
        };
        let built = spec.build(&options, &Environment::new(Default::default()));
        built.map_err(|error| error.to_string())?;
        Ok(Self { text: text.to_owned(), spec, options, poison, history })
    }

    /// The text, which names the allocator even where it is the default one.
    pub fn shown(&self) -> String {
        let is_option = |piece: &&str| {
            !piece.is_empty()
                && piece.split('=').next().is_some_and(|key| key.trim() != "allocator")
        };
        let options = self.text.split(',').map(str::trim).filter(is_option);
        let allocator = format!("allocator={}", self.spec.name);
        options.fold(allocator, |text, option| format!("{text},{option}"))
    }
}

/// Every allocator that can serve a program; those on request are models of other systems' allocators.
fn usable() -> impl Iterator<Item = &'static Spec> {
    by_default().filter(|spec| spec.role != Role::Bound)
}

fn unknown(name: &str) -> String {
    let known = usable().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
    format!("there is no allocator {name:?}; there are: {known}")
}

/// The error for a value that an option of the plug-in's own cannot have.
fn wrong(name: &str, value: &str, expected: &str) -> String {
    format!("option {name} is {value:?}, but must be {expected}")
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(wrong(name, value, "on or off")),
    }
}

fn entries(value: &str) -> Result<usize, String> {
    match value {
        "on" => Ok(HISTORY),
        "off" => Ok(0),
        _ => {
            value.parse().map_err(|_| wrong("record", value, "on, off, or how many events to keep"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_to_whom_they_belong() {
        let text = "allocator=gmlake, fragment_limit=2MiB,,poison=on ,record=500";
        let conf = Conf::parse(text).unwrap();
        assert_eq!((conf.spec.name, conf.poison, conf.history), ("gmlake", true, 500));
        assert_eq!(conf.options.rows(), ["fragment_limit=2MiB"]);
        assert_eq!(conf.shown(), "allocator=gmlake,fragment_limit=2MiB,poison=on,record=500");
        let conf = Conf::parse("").unwrap();
        assert!(DEFAULT_ALLOCATOR.contains(&conf.spec.name));
        assert_eq!(conf.shown(), format!("allocator={}", conf.spec.name));
        assert_eq!((conf.poison, conf.history), (false, 0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("lake", "\"lake\" is not of the form name=value"),
            ("allocator=magic", "there is no allocator \"magic\"; there are: caching, expandable"),
            ("allocator=bound", "there is no allocator \"bound\""),
            ("allocator=gmlake,magic=1", "gmlake has no option \"magic\"; it has: "),
            ("allocator=gmlake,fragment_limit=x", "must be a size such as 128MiB"),
            ("poison=maybe", "option poison is \"maybe\", but must be on or off"),
            ("record=-1", "option record is \"-1\", but must be on, off, or how many"),
        ];
        for (text, expected) in cases {
            let error = Conf::parse(text).unwrap_err();
            assert!(error.starts_with(expected) || error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn every_default_is_an_allocator_or_to_come() {
        assert!(DEFAULT_ALLOCATOR.iter().any(|name| find(name).is_some()));
    }
}
