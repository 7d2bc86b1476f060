//! How much inline data an adapter grants.

/// How a provider rounds the inline data that a queue pair asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// Not at all.
    AsAsked,
    /// To as much as its SGEs take, if that is more.
    AsLongAsSges,
    /// To a power of two, and to no less than this.
    PowerOfTwo {
        /// Also of a queue pair that asks for none.
        least: u32,
    },
    /// To all that is free in an entry of the send queue, whose length is a multiple of 64 bytes.
    Entry64,
    /// To all that is free in an entry of the send queue, whose length is a power of two.
    EntryPowerOfTwo,
}

/// Which operations a queue pair is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations {
    /// READ and WRITE.
    pub one_sided: bool,
    /// Compare and swap, fetch and add.
    pub atomics: bool,
    /// BIND_MW and LOCAL_INV.
    pub keys: bool,
}

/// What a request of a queue pair carries besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Nothing: RC and UC.
    Nothing,
    /// The address of a datagram.
    Address,
    /// The number of a shared receive queue: XRC.
    SharedQueue,
}

/// The send queue that a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `max_inline_data`
    pub inline: u32,
    /// `max_send_sge`
    pub sges: u32,
    /// What each request carries.
    pub carries: Carries,
    /// For what it is made.
    pub operations: Operations,
}

/// The bytes of an SGE in an entry.
const SGE: u32 = 16;

impl Inline {
    /// The inline data that a queue pair gets. The caller knows the most.
    pub fn granted(self, wanted: &Wanted) -> u32 {
        let &Wanted { inline, sges, .. } = wanted;
        match self {
            Self::AsAsked => inline,
            Self::AsLongAsSges => inline.max(sges.saturating_mul(SGE)),
            Self::PowerOfTwo { least } => {
                inline.checked_next_power_of_two().unwrap_or(inline).max(least)
            }
            Self::Entry64 => {
                // The length of inline data stands before them.
                const LENGTH: u32 = 4;
                let head = wanted.head_of_mlx5();
                let data = if inline == 0 {
                    0
                } else {
                    inline.saturating_add(LENGTH).next_multiple_of(SGE)
                };
                let entry = head + data.max(sges.saturating_mul(SGE));
                entry.next_multiple_of(64) - head - LENGTH
            }
            Self::EntryPowerOfTwo => {
                const HEAD: u32 = 32;
                let entry = HEAD + inline.max(sges.saturating_mul(SGE));
                entry.next_power_of_two().max(64) - HEAD
            }
        }
    }
}

impl Wanted {
    /// The bytes before the data in an entry of mlx5: the longest head of the operations, and what a request carries.
    fn head_of_mlx5(&self) -> u32 {
        let Operations { one_sided, atomics, keys } = self.operations;
        let heads = [(keys, 192), (atomics, 48), (one_sided, 32)];
        let head = heads.into_iter().find(|(has, _)| *has).map_or(16, |(_, head)| head);
        head + match self.carries {
            Carries::Nothing => 0,
            Carries::Address => 48,
            Carries::SharedQueue => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Operations = Operations { one_sided: true, atomics: true, keys: true };
    const NONE: Operations = Operations { one_sided: false, atomics: false, keys: false };

    fn granted(by: Inline, inline: u32, sges: u32) -> u32 {
        by.granted(&Wanted { inline, sges, carries: Carries::Nothing, operations: ALL })
    }

    /// The numbers of `spec/adapters.md`.
    ///
    /// Rule: REH-51
    #[test]
    fn inline_data_is_rounded_as_the_providers_do() {
        let of = |by, asked: &[u32]| asked.iter().map(|it| granted(by, *it, 1)).collect::<Vec<_>>();
        assert_eq!(of(Inline::AsAsked, &[0, 13, 101]), [0, 13, 101]);
        assert_eq!(of(Inline::AsLongAsSges, &[0, 13, 100]), [16, 16, 100]);
        assert_eq!(of(Inline::PowerOfTwo { least: 32 }, &[0, 13, 33]), [32, 32, 64]);
        assert_eq!(of(Inline::Entry64, &[0, 60, 61, 64, 828]), [60, 60, 124, 124, 828]);
        assert_eq!(of(Inline::EntryPowerOfTwo, &[0, 32, 40]), [32, 32, 96]);
        assert_eq!(granted(Inline::Entry64, 0, 9), 188);
        let datagrams = |inline| {
            let carries = Carries::Address;
            Inline::Entry64.granted(&Wanted { inline, sges: 1, carries, operations: NONE })
        };
        assert_eq!([0, 61, 956].map(datagrams), [60, 124, 956]);
        let sends_only = Wanted { inline: 0, sges: 1, carries: Carries::Nothing, operations: NONE };
        assert_eq!(Inline::Entry64.granted(&sends_only), 44);
    }
}
