//! Big-endian fields at fixed places of bytes that may be too short.

macro_rules! get {
    ($name:ident, $ty:ty) => {
        pub(super) fn $name(bytes: &[u8], at: usize) -> Option<$ty> {
            let end = at.checked_add(size_of::<$ty>())?;
            Some(<$ty>::from_be_bytes(bytes.get(at..end)?.try_into().ok()?))
        }
    };
}

get!(get_i16, i16);
get!(get_u32, u32);
get!(get_i32, i32);
get!(get_u64, u64);
get!(get_i64, i64);
