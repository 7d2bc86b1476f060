//! Tables of the C functions of a library, linked or loaded.

/// The type of an exported function: the usual one, unless the function has an ABI of its own.
macro_rules! function {
    (, $($signature:tt)*) => { unsafe extern "C" fn $($signature)* };
    ($abi:literal, $($signature:tt)*) => { unsafe extern $abi fn $($signature)* };
}

/// Declares a table of functions under their C names, and its two sources: a crate that defines them, and a
/// library. After `may lack` come functions that not every library has.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident of $linked:ident, in $library:literal;
        $(
            $(extern $abi:literal)? fn $name:ident $(<$source:ty>)?
            ($($argument:ident: $type:ty),*) $(-> $result:ty)?;
        )*
        $(may lack fn $newer:ident ($($newer_argument:ident: $newer_type:ty),*) -> $newer_result:ty;)?
    ) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(
                pub(crate) $name:
                    $crate::functions::function!($($abi)?, ($($type),*) $(-> $result)?),
            )*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_type),*) -> $newer_result>,)?
        }

        impl $table {
            #[cfg(feature = "software")]
            const fn software() -> Self {
                Self {
                    $($name: $linked::$name $(::<$source>)?,)*
                    $($newer: Some($linked::$newer),)?
                }
            }

            /// # Safety
            /// The library's functions of these names have these types.
            unsafe fn load(library: &libloading::Library, path: &str) -> crate::Result<Self> {
                Ok(Self {
                    $(
                        // SAFETY: the caller vouches for the types.
                        $name: *unsafe { library.get(concat!(stringify!($name), "\0")) }
                            .map_err(|error| $crate::functions::unusable($library, path, &error))?,
                    )*
                    $(
                        // SAFETY: the caller vouches for the type.
                        $newer: unsafe { library.get(concat!(stringify!($newer), "\0")) }
                            .ok()
                            .map(|newer| *newer),
                    )?
                })
            }
        }
    };
}

pub(crate) use {function, functions};

/// The error of a library that does not load, or lacks a function.
pub(crate) fn unusable(
    library: &'static str,
    path: &str,
    error: &libloading::Error,
) -> crate::Error {
    // The error itself only says that something failed. Its source says why.
    let problem =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    crate::Error::Library { library, path: path.to_owned(), problem }
}
