//! The C library's functions of the same names.

/// Declares functions that call the C library's, past this library's own.
macro_rules! next {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// # Safety
            /// As the C library's.
            pub(crate) unsafe fn $name($($argument: $type),*) -> $result {
                static NEXT: transom_interpose::Next = transom_interpose::Next::new(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero inside"),
                    },
                );
                let next = NEXT.find();
                if next.is_null() {
                    return -1;
                }
                // SAFETY: the function of this name has this type.
                unsafe {
                    let next: unsafe extern "C-unwind" fn($($type),*) -> $result =
                        std::mem::transmute(next);
                    next($($argument),*)
                }
            }
        )*
    };
}
pub(crate) use next;
