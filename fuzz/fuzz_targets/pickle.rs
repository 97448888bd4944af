//! Any bytes as the body of a pickle: the machine and the walk over what it built. With and without stacks the same
//! entries must come out.

#![no_main]

use gmlake::trace::{LoadOptions, load_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let bytes = [b"\x80\x04", body].concat();
    let [without, with] = [false, true].map(|stacks| {
        load_bytes(&bytes, &LoadOptions { stacks, ..LoadOptions::default() })
    });
    if let (Ok(without), Ok(with)) = (without, with) {
        assert_eq!(without.len(), with.len());
        for (a, b) in without.iter().zip(&with) {
            assert_eq!((a.entries.len(), &a.segments), (b.entries.len(), &b.segments));
        }
    }
});
