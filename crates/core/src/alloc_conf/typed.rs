//! Typed settings: a text whose meaning depends on the PyTorch that is to read it.

use super::{AllocConf, ConfError, TorchVersion, pasted};

/// A configuration as somebody typed or pasted it. Each file's PyTorch reads it in its own way.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedConf {
    text: String,
    meaning: AllocConf,
}

impl TypedConf {
    /// Takes a text that `version` reads; without one, a text that any version reads.
    ///
    /// # Errors
    /// As [`AllocConf::parse`].
    pub fn new(typed: &str, version: Option<TorchVersion>) -> Result<Self, ConfError> {
        let text = pasted(typed).to_owned();
        let usual = AllocConf::parse(&text, version.unwrap_or_default());
        let meaning = match version {
            None => usual
                .or_else(|error| AllocConf::parse(&text, TorchVersion::NEWEST).map_err(|_| error)),
            Some(_) => usual,
        }?;
        Ok(Self { text, meaning })
    }

    /// What this version makes of it.
    ///
    /// # Errors
    /// As [`AllocConf::parse`]: a version refuses the options of later ones.
    pub fn read(&self, version: TorchVersion) -> Result<AllocConf, ConfError> {
        AllocConf::parse(&self.text, version)
    }

    /// What it means where the version does not matter.
    pub fn meaning(&self) -> &AllocConf {
        &self.meaning
    }
}
