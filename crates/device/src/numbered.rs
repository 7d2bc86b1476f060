//! Enums whose values are numbers that leave the process.

/// Declares an enum without data whose every value has the number given, and its way back from that.
#[macro_export]
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $value:ident = $code:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $value = $code,)+ }

        impl $name {
            /// Every one there is.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The one with this number, as [`Self::code`] gives it.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$value),)+
                    _ => None,
                }
            }

            /// Its number, which stays the same from version to version.
            pub const fn code(self) -> u8 {
                self as u8
            }
        }
    };
}

pub(crate) use numbered;
