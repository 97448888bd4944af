//! Knobs: the options of `PYTORCH_CUDA_ALLOC_CONF` that are worth trying, with values.

use crate::alloc_conf::split_outside_brackets;

/// An option of PyTorch, and values to try; the default is to leave it out.
pub(crate) struct Knob {
    pub(crate) name: &'static str,
    /// Values far apart.
    pub(crate) coarse: &'static [&'static str],
    /// Values between them.
    pub(crate) finer: &'static [&'static str],
}

/// What there is to turn. PyTorch's versions know different ones: those that are refused are left out.
pub(crate) const KNOBS: [Knob; 5] = [
    Knob { name: "expandable_segments", coarse: &["True"], finer: &[] },
    Knob {
        name: "max_split_size_mb",
        coarse: &["32", "64", "128", "256", "512", "1024"],
        finer: &["20", "48", "96", "192", "384", "768", "1536", "2048", "4096"],
    },
    Knob {
        name: "roundup_power2_divisions",
        coarse: &["2", "4", "8", "16", "[256:1,512:2,1024:4,>:8]"],
        finer: &["1", "32", "64"],
    },
    Knob {
        name: "large_segment_size_mb",
        coarse: &["32", "64", "128"],
        finer: &["12", "16", "24", "48", "96", "256", "512"],
    },
    Knob { name: "max_non_split_rounding_mb", coarse: &[], finer: &["64", "256", "1024"] },
];

/// Acts only where PyTorch keeps to a limit of its own.
pub(crate) const COLLECTION: Knob = Knob {
    name: "garbage_collection_threshold",
    coarse: &["0.6", "0.8"],
    finer: &["0.5", "0.7", "0.9", "0.95"],
};

/// Values of one of PyTorch's options each, option by option; not `expandable_segments`, which is an allocator here.
pub(crate) fn single_settings() -> impl Iterator<Item = Vec<String>> {
    let split = KNOBS.iter().filter(|knob| knob.name != "expandable_segments");
    split.map(|knob| knob.coarse.iter().map(|value| format!("{}:{value}", knob.name)).collect())
}

impl Knob {
    /// This knob's value in a setting that is made of ours.
    pub(crate) fn value_in(&self, conf: &str) -> Option<&'static str> {
        let options = split_outside_brackets(conf, ',');
        let is_set = |value: &&str| options.contains(&&*format!("{}:{value}", self.name));
        self.coarse.iter().chain(self.finer).copied().find(is_set)
    }
}
