//! The devices that jobs are put on: sizes as they are, and cards less what a job leaves to all but PyTorch.
//!
//! How much that is depends on the job: several ranks have communicators.

use crate::beside::{self, Uses};
use crate::cards::{Card, Target};
use crate::input_error::InputError;
use crate::units::Bytes;

/// Sizes and cards.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    /// Sizes, all of which a job may hold.
    pub sizes: Vec<Bytes>,
    /// Cards.
    pub cards: Vec<Card>,
    /// Bytes of each card to leave to others; `None`: the most that the uses are expected to take.
    pub reserve: Option<Bytes>,
    /// What a job does with a card; `None`: what is usual for its number of ranks.
    pub uses: Option<Uses>,
}

impl Devices {
    /// The catalogue's cards, for jobs that do what is usual.
    pub fn catalogue() -> Self {
        Self { cards: Card::built_in(), ..Self::default() }
    }

    /// Each device for a job of so many ranks, always in the same order. A card that has nothing left has 0 bytes.
    pub fn for_ranks(&self, ranks: usize) -> Vec<Target> {
        let sizes = self.sizes.iter().copied().map(Target::of_size);
        let full = |card: &Card| Target {
            name: card.name.clone(),
            capacity_bytes: 0,
            reserve_bytes: card.usable_bytes,
        };
        let card = |card| self.card(card, ranks).unwrap_or_else(|_| full(card));
        sizes.chain(self.cards.iter().map(card)).collect()
    }

    /// One of the cards for a job of so many ranks.
    ///
    /// # Errors
    /// If nothing is left of it.
    pub fn card(&self, card: &Card, ranks: usize) -> Result<Target, InputError> {
        let usual = || Uses::usual(ranks);
        match self.reserve {
            Some(reserve) => card.target(reserve),
            None => beside::target(card, &self.uses.clone().unwrap_or_else(usual)),
        }
    }

    /// Makes sure that a job of one rank may hold something on one of the cards, if there are any.
    ///
    /// # Errors
    /// What is wrong with the first card, if it may not.
    pub fn check(&self) -> Result<(), InputError> {
        let mut cards = self.cards.iter().map(|card| self.card(card, 1).map(drop));
        let first = cards.next().unwrap_or(Ok(()));
        if cards.any(|card| card.is_ok()) { Ok(()) } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GIB, MIB};

    #[test]
    fn several_ranks_leave_more_and_a_size_is_left_whole() {
        let devices = Devices { sizes: vec![3 * GIB], ..Devices::catalogue() };
        let [one, two] = [1, 2].map(|ranks| devices.for_ranks(ranks));
        assert_eq!(one[0], Target::of_size(3 * GIB));
        assert_eq!(one.len(), 1 + devices.cards.len());
        for (one, two) in one.iter().zip(&two).skip(1) {
            assert_eq!(one.name, two.name);
            assert!(one.reserve_bytes + 500 * MIB < two.reserve_bytes, "{one:?} {two:?}");
        }
    }

    #[test]
    fn a_card_that_is_full_has_nothing_and_if_all_are_it_is_an_error() {
        let of = |reserve| Devices { reserve: Some(reserve), ..Devices::catalogue() };
        let some = of(20 * GIB);
        assert!(some.check().is_ok());
        let targets = some.for_ranks(1);
        assert!(targets.iter().any(|target| target.capacity_bytes == 0));
        assert!(targets.iter().any(|target| target.capacity_bytes > 0));
        let error = of(1 << 40).check().unwrap_err().to_string();
        assert!(error.contains("leaves nothing"), "{error}");
    }
}
