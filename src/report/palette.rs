//! The colours of all pictures and pages, so that an allocator looks the same in each.
//!
//! Those of Okabe and Ito, which people with any colour vision can tell apart; on a dark page the dark ones among them
//! are lighter. Causes have other colours than allocators have (Paul Tol's muted scheme), so that the one is not taken
//! for the other.

use crate::run::{Cause, RECORDED, RunSummary};

/// Red, green and blue.
pub(crate) type Rgb = (u8, u8, u8);

/// A colour on a light page, and the one that stands for it on a dark page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Colour {
    /// On white.
    pub(crate) light: Rgb,
    /// On near-black.
    pub(crate) dark: Rgb,
}

const fn both(light: Rgb, dark: Rgb) -> Colour {
    Colour { light, dark }
}

const COLOURS: [(&str, Colour); 11] = [
    (RECORDED, both((40, 40, 40), (226, 226, 226))),
    ("caching", both((213, 94, 0), (235, 122, 40))),
    ("expandable", both((0, 114, 178), (58, 150, 214))),
    ("gmlake", both((0, 158, 115), (26, 184, 140))),
    ("gmlake-released", both((86, 180, 233), (130, 205, 250))),
    ("lake", both((118, 42, 131), (190, 120, 205))),
    ("offline", both((102, 166, 30), (140, 200, 70))),
    ("vmm", both((230, 159, 0), (240, 176, 40))),
    ("bound", both((204, 121, 167), (222, 146, 188))),
    ("bound-2mib", both((221, 170, 200), (176, 128, 156))),
    ("native", both((140, 140, 140), (150, 150, 150))),
];

/// Colours for allocators that are not in the list above.
pub(crate) const MORE_COLOURS: [Colour; 3] = [
    both((127, 59, 8), (190, 120, 70)),
    both((27, 120, 55), (90, 174, 97)),
    both((64, 0, 255), (140, 110, 255)),
];

/// The colour of an allocator that has one of its own.
pub(crate) fn known(allocator: &str) -> Option<Colour> {
    COLOURS.iter().find(|(name, _)| *name == allocator).map(|&(_, colour)| colour)
}

/// The colour of each run.
pub(crate) fn colours(runs: &[RunSummary]) -> Vec<Colour> {
    colours_of(runs.iter().map(|run| run.allocator.as_str()))
}

/// The colour of each allocator: its own, or else one that no other has.
pub(crate) fn colours_of<'a>(allocators: impl Iterator<Item = &'a str>) -> Vec<Colour> {
    let mut more = MORE_COLOURS.into_iter().cycle();
    let colour = |name: &str| known(name).or_else(|| more.next()).unwrap_or(COLOURS[0].1);
    allocators.map(colour).collect()
}

/// Text needs this contrast with what it stands on, as the Web Content Accessibility Guidelines (AA) say.
pub(crate) const READABLE: f64 = 4.5;

/// The colour, as much darker or lighter as text on `page` needs to be read.
pub(crate) fn readable(colour: Rgb, page: Rgb) -> Rgb {
    let end = if contrast(page, (0, 0, 0)) > contrast(page, (255, 255, 255)) { 0.0 } else { 255.0 };
    let mix =
        |part: u8, share: f64| (f64::from(part) + share * (end - f64::from(part))).round() as u8;
    let mixed = |step: u32| {
        let share = f64::from(step) / 100.0;
        (mix(colour.0, share), mix(colour.1, share), mix(colour.2, share))
    };
    (0..=100).map(mixed).find(|&mixed| contrast(mixed, page) >= READABLE).unwrap_or(colour)
}

/// How far apart two colours are in brightness, from 1 to 21.
pub(crate) fn contrast(one: Rgb, other: Rgb) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

fn luminance((red, green, blue): Rgb) -> f64 {
    let linear = |part: u8| match f64::from(part) / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

pub(crate) const fn of_cause(cause: Cause) -> Colour {
    match cause {
        Cause::Rounding => both((154, 154, 154), (130, 130, 130)),
        Cause::Remainder => both((204, 102, 119), (214, 116, 132)),
        Cause::TooSmall => both((221, 204, 119), (214, 194, 100)),
        Cause::SameStream => both((153, 153, 51), (160, 160, 70)),
        Cause::OtherStream => both((51, 34, 136), (124, 108, 214)),
        Cause::SmallPool => both((136, 204, 238), (110, 180, 220)),
        Cause::WrongPool => both((170, 68, 153), (190, 96, 174)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_colour_of_their_lines_can_be_read() {
        assert!((contrast((0, 0, 0), (255, 255, 255)) - 21.0).abs() < 1e-9);
        // The example of the guidelines: #777777 on white just fails.
        assert!((contrast((0x77, 0x77, 0x77), (255, 255, 255)) - 4.48).abs() < 0.005);
        for (name, Colour { light, dark }) in COLOURS {
            for (colour, page) in [(light, (255, 255, 255)), (dark, (0x14, 0x17, 0x1a))] {
                let text = readable(colour, page);
                assert!(contrast(text, page) >= READABLE, "{name}: {text:?}");
                let was_readable = contrast(colour, page) >= READABLE;
                assert_eq!(text == colour, was_readable, "{name}: changed without need");
            }
        }
    }
}
