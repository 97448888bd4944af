//! Philox 4x32 with ten rounds: the random numbers of PyTorch's CUDA kernels. They have no state: each thread's follow
//! from the generator's seed, a counter and the thread's number.

const MULTIPLY: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEYS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The four words that a thread draws.
#[inline]
pub fn philox(seed: u64, counter: u64, thread: u64) -> [u32; 4] {
    let mut words = [counter as u32, (counter >> 32) as u32, thread as u32, (thread >> 32) as u32];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let (one, two) = (u64::from(words[0]) * MULTIPLY[0], u64::from(words[2]) * MULTIPLY[1]);
        words = [
            (two >> 32) as u32 ^ words[1] ^ key[0],
            two as u32,
            (one >> 32) as u32 ^ words[3] ^ key[1],
            one as u32,
        ];
        key = [key[0].wrapping_add(KEYS[0]), key[1].wrapping_add(KEYS[1])];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers that its authors publish (Random123, `kat_vectors`).
    #[test]
    fn draws_what_its_authors_publish() {
        let found = [
            philox(0, 0, 0),
            philox(u64::MAX, u64::MAX, u64::MAX),
            philox(0x299F_31D0_A409_3822, 0x85A3_08D3_243F_6A88, 0x0370_7344_1319_8A2E),
        ];
        let published = [
            [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8],
            [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD],
            [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1],
        ];
        assert_eq!(found, published);
    }
}
