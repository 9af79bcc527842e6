//! How functions, structs and enums are declared for C, once for Rust and once as text.
//!
//! [`c_header`] defines the items of one header, and a list of their C tokens. A test compares the
//! tokens with those of the header in `include/`, so the two cannot differ.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::failure::{self, Failure};

/// A type that C knows, by its name there.
pub(crate) trait CType {
    #[cfg_attr(not(test), allow(dead_code, reason = "a test compares headers"))]
    fn name() -> String;
}

macro_rules! c_types {
    ($($rust:ty => $c:literal,)*) => {
        $(impl CType for $rust {
            fn name() -> String {
                $c.into()
            }
        })*
    };
}

c_types! {
    u8 => "uint8_t",
    u32 => "uint32_t",
    u64 => "uint64_t",
    usize => "size_t",
    c_int => "int",
    Char => "char",
    c_void => "void",
    Text => "const char *",
}

impl<T: CType> CType for *mut T {
    fn name() -> String {
        format!("{} *", T::name())
    }
}

impl CType for *const c_void {
    fn name() -> String {
        "const void *".into()
    }
}

impl CType for *const c_char {
    fn name() -> String {
        "const char *".into()
    }
}

/// A value of a C enum. C programs can pass any number.
#[repr(transparent)]
pub struct CEnum<E>(u32, PhantomData<E>);

impl<E> CEnum<E> {
    pub(crate) fn new(value: u32) -> Self {
        Self(value, PhantomData)
    }

    pub(crate) fn value(&self) -> u32 {
        self.0
    }
}

impl<E> Clone for CEnum<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for CEnum<E> {}

impl<E: CType> CType for CEnum<E> {
    fn name() -> String {
        E::name()
    }
}

/// A pointer to something that a function reads: NULL, or valid as the header says. Only a C program
/// makes one, by a call of a function of [`c_header`]. It may be unaligned.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Copies the value.
    pub(crate) fn read(&self, what: &str) -> Result<T, Failure> {
        self.read_if_any()
            .ok_or_else(|| Failure::new(format!("{what} is NULL")))
    }

    /// Copies the value; `None` for NULL.
    pub(crate) fn read_if_any(&self) -> Option<T> {
        // SAFETY: the C program promises that the pointer is valid, if it is not NULL. `T` is a struct
        // of numbers, for which all bytes are valid.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }
}

impl<T> In<T> {
    /// Copies `length` bytes from the address.
    pub(crate) fn bytes(&self, length: usize, what: &str) -> Result<Vec<u8>, Failure> {
        if self.0.is_null() {
            return Err(Failure::new(format!("{what} is NULL")));
        }
        let mut bytes = vec![0; length];
        // SAFETY: the C program promises that `length` bytes can be read. The vector is new, so the two
        // do not overlap.
        unsafe { ptr::copy_nonoverlapping(self.0.cast(), bytes.as_mut_ptr(), length) };
        Ok(bytes)
    }
}

/// No version of a struct that can grow will have more bytes. A size that was not set is found so.
const MOST_BYTES: usize = 4096;

/// A struct that can get more fields in later versions: its first field is its size in the program.
///
/// # Safety
/// The first field is a `usize`, all zeroes are a valid value, and fields are only added at the end.
pub unsafe trait Grows: Copy {
    /// For people.
    const NAME: &'static str;
    /// Its bytes in the first version.
    const FIRST_BYTES: usize;
}

/// Checks the size of a struct that a program has given. Returns how many bytes both know.
fn common_bytes<T: Grows>(size: usize) -> Result<usize, Failure> {
    match (T::FIRST_BYTES..=MOST_BYTES).contains(&size) {
        true => Ok(size.min(size_of::<T>())),
        false => Err(Failure::new(format!(
            "size = {size}: set it to sizeof(struct {})",
            T::NAME
        ))),
    }
}

impl<T: Grows> In<T> {
    /// Copies the fields that the program knows. The others are zero. `None` for NULL.
    ///
    /// # Errors
    /// For a size that no version has, and for fields that this version does not know.
    pub(crate) fn read_known(&self) -> Result<Option<T>, Failure> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: the C program promises that the pointer is valid, and `T` begins with its size.
        let size = unsafe { self.0.cast::<usize>().read_unaligned() };
        let common = common_bytes::<T>(size)?;
        let newer = In::<c_void>(self.0.cast()).bytes(size, T::NAME)?;
        if newer[common..].iter().any(|&byte| byte != 0) {
            return Err(Failure::new(format!(
                "struct {} has {size} bytes in the program, and {} in this version of the library, which \
                 would ignore the fields behind: set them to zero, or use the library of the header",
                T::NAME,
                size_of::<T>()
            )));
        }
        // SAFETY: `T` promises that all zeroes are a value, and any bytes of C are one; at most its size is
        // copied, from memory that the program promises to be valid.
        Ok(Some(unsafe {
            let mut value: T = std::mem::zeroed();
            ptr::copy_nonoverlapping(self.0.cast::<u8>(), (&raw mut value).cast(), common);
            value
        }))
    }
}

impl<T: CType> CType for In<T> {
    fn name() -> String {
        format!("{} *", T::name())
    }
}

/// A character of C. `c_char` is `i8` for some processors, and `u8` for others.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Char(c_char);

/// A string that a function reads: NULL, or a string that ends with a zero byte.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// Copies the text; `None` for NULL. Bytes that are not UTF-8 are replaced.
    pub(crate) fn read_if_any(&self) -> Option<String> {
        // SAFETY: the C program promises it.
        let text = (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })?;
        Some(text.to_string_lossy().into_owned())
    }

    pub(crate) fn read(&self, what: &str) -> Result<String, Failure> {
        self.read_if_any()
            .ok_or_else(|| Failure::new(format!("{what} is NULL")))
    }
}

/// A pointer to something that a function writes: NULL, or valid as the header says. It may be
/// unaligned.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Writes the value, unless the pointer is NULL.
    pub(crate) fn write(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the C program promises that the pointer is valid.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

impl<T: Grows> Out<T> {
    /// Refuses a size that no version has, before a function does anything.
    pub(crate) fn check_size(&self) -> Result<(), Failure> {
        self.size().map(drop)
    }

    /// The size that the program has given, and how many bytes of it are known; 0 for NULL.
    fn size(&self) -> Result<(usize, usize), Failure> {
        if self.0.is_null() {
            return Ok((0, 0));
        }
        // SAFETY: the C program promises that the pointer is valid, and `T` begins with its size.
        let size = unsafe { self.0.cast::<usize>().read_unaligned() };
        Ok((size, common_bytes::<T>(size)?))
    }

    /// Writes the fields that the program knows, and its size, unless the pointer is NULL.
    pub(crate) fn write_known(&self, fill: impl FnOnce(usize) -> T) -> Result<(), Failure> {
        let (size, common) = self.size()?;
        if common == 0 {
            return Ok(());
        }
        let value = fill(size);
        // SAFETY: the C program promises that as many bytes as it says can be written.
        unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), self.0.cast(), common) };
        Ok(())
    }
}

impl<T> Out<T> {
    /// Refuses NULL, before a function does anything.
    pub(crate) fn check(&self, what: &str) -> Result<(), Failure> {
        match self.0.is_null() {
            true => Err(Failure::new(format!("{what} is NULL"))),
            false => Ok(()),
        }
    }

    /// Copies bytes to the address.
    pub(crate) fn write_bytes(&self, bytes: &[u8], what: &str) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::new(format!("{what} is NULL")));
        }
        // SAFETY: the C program promises that there is room. No Rust memory is there.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        Ok(())
    }
}

impl<T: CType> CType for Out<T> {
    fn name() -> String {
        format!("{} *", T::name())
    }
}

/// Copies bytes that a program gives.
///
/// # Errors
/// For NULL, unless there are no bytes.
pub(crate) fn copy_in(from: *const c_void, length: usize) -> Result<Vec<u8>, Failure> {
    match length {
        0 => Ok(Vec::new()),
        _ => In::<c_void>(from).bytes(length, "bytes"),
    }
}

/// What a function returns to C.
pub(crate) trait CReturn {
    /// What its body returns.
    type Value;
    fn of(result: Result<Self::Value, Failure>) -> Self;
}

impl CReturn for c_int {
    type Value = ();
    fn of(result: Result<(), Failure>) -> Self {
        failure::code(result)
    }
}

impl<T> CReturn for *mut T {
    type Value = *mut T;
    fn of(result: Result<*mut T, Failure>) -> Self {
        match result {
            Ok(pointer) => pointer,
            Err(failure) => {
                failure::note(&failure);
                ptr::null_mut()
            }
        }
    }
}

impl<E> CReturn for CEnum<E> {
    type Value = Self;
    fn of(result: Result<Self, Failure>) -> Self {
        result.unwrap_or(Self::new(0))
    }
}

impl CReturn for *const c_char {
    type Value = *const c_char;
    fn of(result: Result<*const c_char, Failure>) -> Self {
        result.unwrap_or(ptr::null())
    }
}

/// Runs the body of a function. A panic does not reach C: it is an error.
pub(crate) fn guard<R: CReturn>(body: impl FnOnce() -> Result<R::Value, Failure>) -> R {
    let panicked = |_| Err(Failure::new("the library has a defect: it panicked"));
    R::of(catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked))
}

/// Defines the items of a header, in the order in which it has them.
macro_rules! c_header {
    (
        $(opaque $opaque:ident;)*
        $(enum $enum:ident { $($value:ident),* $(,)? })*
        $(struct $struct:ident { $($field:ident: $type:ty),* $(,)? })*
        $(fn $name:ident($($arg:ident: $arg_type:ty),* $(,)?) -> $return:ty $body:block)*
    ) => {
        $(
            #[doc = concat!("A handle. `struct ", stringify!($opaque), "` has no fields for C.")]
            #[repr(C)]
            pub struct $opaque {
                _opaque: [u8; 0],
            }

            impl $crate::ffi::CType for $opaque {
                fn name() -> String {
                    concat!("struct ", stringify!($opaque)).into()
                }
            }
        )*
        $(
            #[doc = concat!("`enum ", stringify!($enum), "` of the header.")]
            #[repr(u32)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(dead_code, missing_docs, reason = "C programs use them, and the header describes them")]
            pub enum $enum {
                $($value),*
            }

            impl $crate::ffi::CType for $enum {
                fn name() -> String {
                    concat!("enum ", stringify!($enum)).into()
                }
            }
        )*
        $(
            #[doc = concat!("`struct ", stringify!($struct), "` of the header.")]
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(missing_docs, reason = "the header describes the fields")]
            pub struct $struct {
                $(pub $field: $type),*
            }

            impl $crate::ffi::CType for $struct {
                fn name() -> String {
                    concat!("struct ", stringify!($struct)).into()
                }
            }
        )*
        $(
            #[doc = concat!("`", stringify!($name), "` of the header, which describes it.")]
            ///
            /// # Safety
            /// Pointers are NULL, or valid as the header says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $arg_type),*) -> $return {
                $crate::ffi::guard::<$return>(move || $body)
            }
        )*

        /// The items as C source, for comparison with the header.
        #[cfg(test)]
        pub(crate) fn declarations() -> String {
            #[allow(unused_imports)]
            use $crate::ffi::CType as _;
            let mut text = String::new();
            $(text += concat!("struct ", stringify!($opaque), ";\n");)*
            $(
                text += concat!("enum ", stringify!($enum), " {");
                text += &[$(stringify!($value)),*].join(",");
                text += "};\n";
            )*
            $(
                text += concat!("struct ", stringify!($struct), " {");
                $(text += &format!("{} {};", <$type>::name(), stringify!($field));)*
                text += "};\n";
            )*
            $(
                text += &format!("{} {}(", <$return>::name(), stringify!($name));
                let args: Vec<String> = vec![
                    $(format!("{} {}", <$arg_type>::name(), stringify!($arg))),*
                ];
                text += &if args.is_empty() { "void".into() } else { args.join(",") };
                text += ");\n";
            )*
            text
        }
    };
}
pub(crate) use c_header;

/// The tokens of C source. Comments, preprocessor lines and code for C++ only are left out.
#[cfg(test)]
pub(crate) fn tokens(source: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("/*") {
        text += before;
        rest = after.split_once("*/").expect("a comment ends").1;
    }
    text += rest;
    let mut tokens: Vec<String> = Vec::new();
    let mut is_for_cpp = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('#') {
            is_for_cpp = line == "#ifdef __cplusplus";
            continue;
        }
        if is_for_cpp {
            continue;
        }
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if !c.is_whitespace() {
                tokens.push(c.into());
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::tokens;

    /// The headers have exactly the items that the library defines.
    #[test]
    fn headers_are_as_the_library() {
        for (header, source, declarations) in [
            (
                "sdr.h",
                include_str!("../include/sdr.h"),
                crate::sdr::declarations(),
            ),
            (
                "sdr_mr.h",
                include_str!("../include/sdr_mr.h"),
                crate::sdr_mr::declarations(),
            ),
            (
                "farwrite.h",
                include_str!("../include/farwrite.h"),
                crate::farwrite_h::declarations(),
            ),
        ] {
            let (found, expected) = (tokens(source), tokens(&declarations));
            let same = found.iter().zip(&expected).take_while(|(a, b)| a == b);
            let at = same.count();
            let [found_there, expected_there] =
                [&found, &expected].map(|tokens| tokens[at..].iter().take(12).collect::<Vec<_>>());
            assert_eq!(found_there, expected_there, "{header}, token {at}");
        }
    }
}
