//! Images: the machine code that a library carries for its kernels, and which of it a card runs.
//!
//! The compiler puts the code of a file for every architecture into one *fat binary*, which is registered when its
//! library is loaded. `cudaFuncGetAttributes` tells which image of a kernel the driver has chosen. CUB asks, and it
//! refuses an architecture that it was not compiled for. So a guess from the card alone will not do: an L40S (8.9)
//! runs what was compiled for 8.6 where a wheel has nothing closer.
//!
//! ```text
//!   header    magic, version, bytes of header, bytes of all images
//!   image     kind, version, bytes of header, bytes of image, ..., architecture, ..., flags      one after another
//! ```

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An intermediate language, which the driver compiles for any later card.
    Ptx,
    /// Machine code.
    Binary,
}

/// Which cards run an image, apart from the one that it was compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Later ones; of machine code, those with the same number before the point.
    Later,
    /// Later ones with the same number before the point (`sm_100f`).
    Family,
    /// None (`sm_90a`).
    Only,
}

/// One image of a fat binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// What it is.
    pub kind: Kind,
    /// 90 for compute capability 9.0.
    pub architecture: i32,
    /// Which cards run it.
    pub reach: Reach,
}

/// The architectures by which the driver describes a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The architecture of the intermediate language that it was compiled from.
    pub ptx: i32,
    /// The architecture of the machine code.
    pub binary: i32,
}

/// The first four bytes of a fat binary.
const MAGIC: u32 = 0xBA55_ED50;
/// Bytes of its header.
pub const HEADER: usize = 16;

impl Image {
    /// Whether a card of this architecture runs it.
    fn runs_on(&self, card: i32) -> bool {
        let is_later = self.architecture <= card;
        let is_near = is_later && self.architecture / 10 == card / 10;
        match (self.reach, self.kind) {
            (Reach::Only, _) => self.architecture == card,
            (Reach::Family, _) | (Reach::Later, Kind::Binary) => is_near,
            (Reach::Later, Kind::Ptx) => is_later,
        }
    }
}

/// The bytes of a fat binary with its header, if `header` is that of one.
pub fn length(header: &[u8; HEADER]) -> Option<usize> {
    let whole = number(header, 6, 2)? + number(header, 8, 8)?;
    (number(header, 0, 4)? == u64::from(MAGIC)).then(|| usize::try_from(whole).ok())?
}

/// The images of a fat binary. What cannot be read ends the list.
pub fn images(binary: &[u8]) -> Vec<Image> {
    let mut found = Vec::new();
    let mut at = number(binary, 6, 2).unwrap_or(0) as usize;
    while let Some((image, bytes)) = binary.get(at..).and_then(image) {
        found.extend(image);
        at = at.saturating_add(bytes);
    }
    found
}

/// The first image of these bytes, none if it is of a kind that is not known, and how many bytes it takes.
fn image(bytes: &[u8]) -> Option<(Option<Image>, usize)> {
    const ONLY: u64 = 1 << 20;
    const FAMILY: u64 = 1 << 21;
    let length = number(bytes, 4, 4)?.checked_add(number(bytes, 8, 8)?)?;
    let flags = number(bytes, 40, 8)?;
    let reach = match flags {
        _ if flags & ONLY != 0 => Reach::Only,
        _ if flags & FAMILY != 0 => Reach::Family,
        _ => Reach::Later,
    };
    let kind = match number(bytes, 0, 2)? {
        1 => Some(Kind::Ptx),
        2 => Some(Kind::Binary),
        _ => None,
    };
    let architecture = number(bytes, 28, 4)? as i32;
    let image = kind.map(|kind| Image { kind, architecture, reach });
    (length > 0).then_some((image, usize::try_from(length).ok()?))
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..width].copy_from_slice(bytes.get(at..at + width)?);
    Some(u64::from_le_bytes(value))
}

/// What the driver of a card of this architecture chooses: the closest machine code, else the closest intermediate
/// language, which it compiles for the card. `None` if the card runs none of them.
pub fn chosen(images: &[Image], card: i32) -> Option<Chosen> {
    let closest = |kind| {
        let able = images.iter().filter(|image| image.kind == kind && image.runs_on(card));
        able.map(|image| image.architecture).max()
    };
    let binary = closest(Kind::Binary).map(|binary| Chosen { ptx: binary, binary });
    binary.or_else(|| closest(Kind::Ptx).map(|ptx| Chosen { ptx, binary: card }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image as the compiler writes it, with some bytes of contents.
    fn written(kind: u16, architecture: u32, flags: u64) -> Vec<u8> {
        let (header, contents) = (64u32, 24u64);
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(0x101u16.to_le_bytes());
        bytes.extend(header.to_le_bytes());
        bytes.extend(contents.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(architecture.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(flags.to_le_bytes());
        bytes.resize(header as usize + contents as usize, 7);
        bytes
    }

    fn fat(images: &[(u16, u32, u64)]) -> Vec<u8> {
        let all: Vec<u8> =
            images.iter().flat_map(|&(kind, of, flags)| written(kind, of, flags)).collect();
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(1u16.to_le_bytes());
        bytes.extend((HEADER as u16).to_le_bytes());
        bytes.extend((all.len() as u64).to_le_bytes());
        bytes.extend(all);
        bytes
    }

    /// As in a wheel of PyTorch 2.14; the last two are `sm_100a` and `sm_103f`.
    fn wheel() -> Vec<u8> {
        let plain = [75, 80, 86, 90, 100, 120].map(|of| (2, of, 0x8011));
        fat(&[&plain[..], &[(2, 100, 0x10_8011), (2, 103, 0x20_8011)]].concat())
    }

    #[test]
    fn the_closest_image_that_a_card_runs_is_chosen() {
        let all = images(&wheel());
        assert_eq!(all.len(), 8);
        let plain = &all[..6];
        for (card, one) in
            [(80, 80), (86, 86), (89, 86), (90, 90), (100, 100), (103, 100), (121, 120)]
        {
            assert_eq!(chosen(plain, card), Some(Chosen { ptx: one, binary: one }), "{card}");
        }
        assert_eq!(chosen(&all, 103), Some(Chosen { ptx: 103, binary: 103 }));
        assert_eq!(chosen(plain, 110), None, "machine code is of one generation");
    }

    #[test]
    fn an_image_for_one_card_or_one_family_is_for_no_other() {
        let of = |flags| images(&fat(&[(2, 100, flags)]));
        assert_eq!(chosen(&of(0x10_8011), 103), None);
        assert!(chosen(&of(0x10_8011), 100).is_some() && chosen(&of(0x20_8011), 103).is_some());
        let language = images(&fat(&[(1, 90, 0x10_8011)]));
        assert_eq!(chosen(&language, 100), None, "compute_90a");
    }

    #[test]
    fn the_intermediate_language_is_compiled_for_a_card_without_machine_code() {
        let all = images(&fat(&[(2, 80, 0x8011), (1, 80, 0x8011), (64, 99, 0)]));
        assert_eq!(chosen(&all, 90), Some(Chosen { ptx: 80, binary: 90 }));
        assert_eq!(chosen(&all, 89), Some(Chosen { ptx: 80, binary: 80 }));
        assert_eq!(chosen(&all, 75), None);
    }

    #[test]
    fn a_damaged_binary_ends_the_list() {
        let whole = wheel();
        assert_eq!(length(whole[..HEADER].try_into().unwrap()), Some(whole.len()));
        assert_eq!(length(&[0; HEADER]), None);
        for cut in 0..whole.len() {
            assert!(images(&whole[..cut]).len() <= 8);
        }
        let mut endless = whole.clone();
        endless[HEADER + 4..HEADER + 16].fill(0);
        assert!(images(&endless).is_empty());
        endless[HEADER + 4..HEADER + 16].fill(0xff);
        assert!(images(&endless).len() <= 1);
    }
}
