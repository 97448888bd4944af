//! Which devices a program sees: `CUDA_VISIBLE_DEVICES`, as the driver reads it when the program first uses a GPU.
//!
//! ```text
//!   4 devices         2,0 ──▶ device 0 is the machine's 2, device 1 its 0
//!                   0,7,1 ──▶ its 0 alone: the first that is not there ends the list
//!                "" or -1 ──▶ none
//!        GPU-...1, GPU-...3 ──▶ its 1 and 3, by the names that NVML has for them
//! ```

/// The machine's numbers of the devices that a program sees, in the program's order. PyTorch counts in the same way
/// (`torch.cuda.device_count`): a repeated device leaves none.
pub fn visible(variable: Option<&str>, devices: usize) -> Vec<usize> {
    let Some(text) = variable else { return (0..devices).collect() };
    let find = if text.starts_with("GPU-") { by_name } else { by_number };
    let mut found = Vec::new();
    for device in text.split(',').map_while(|word| find(word.trim(), devices)) {
        if found.contains(&device) {
            return Vec::new();
        }
        found.push(device);
    }
    found
}

/// What tells a device from all others.
pub fn uuid(device: usize) -> [u8; 16] {
    (device as u128).to_be_bytes()
}

/// The same as text.
pub fn name(device: usize) -> String {
    format!("GPU-00000000-0000-0000-0000-{device:012x}")
}

/// The device whose name begins so, if it is the only one.
fn by_name(begin: &str, devices: usize) -> Option<usize> {
    let mut found = (0..devices).filter(|&device| name(device).starts_with(begin));
    found.next().filter(|_| begin.starts_with("GPU-") && found.next().is_none())
}

/// The device whose number a word begins with.
fn by_number(word: &str, devices: usize) -> Option<usize> {
    let word = word.strip_prefix('+').unwrap_or(word);
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok().filter(|&device| device < devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_ends_at_the_first_device_that_is_not_there() {
        let found = |text: &str| visible(Some(text), 4);
        assert_eq!(visible(None, 3), [0, 1, 2]);
        for none in ["", "-1", "7", "NoDevFiles", "1,1", "GPU-", "MIG-GPU-0"] {
            assert!(found(none).is_empty(), "{none}");
        }
        assert_eq!((found("2,0"), found("0,7,1"), found("3,-1,0")), (vec![2, 0], vec![0], vec![3]));
        assert_eq!(found(" 1gpu2 , +2"), [1, 2]);
        assert_eq!(found(&format!("{},{}", name(3), name(1))), [3, 1]);
        assert_eq!(found(&format!("{},1", name(3))), [3]);
        assert_eq!(visible(Some("GPU-0"), 1), [0], "as much as is unique");
    }
}
