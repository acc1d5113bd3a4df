//! Keys and owners: opaque, compared byte by byte.

/// The longest key or owner, in bytes.
pub const MAX_BYTES: usize = 255;

/// A key or an owner, 1 to 255 bytes, in place: it lives in shared memory as it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Name {
    len: u8,
    bytes: [u8; MAX_BYTES],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameError {
    Empty,
    TooLong,
}

impl Name {
    pub fn new(bytes: &[u8]) -> Result<Name, NameError> {
        let len = match u8::try_from(bytes.len()) {
            Ok(0) => return Err(NameError::Empty),
            Ok(len) => len,
            Err(_) => return Err(NameError::TooLong),
        };
        let mut name = Name { len, bytes: [0; MAX_BYTES] };
        name.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(name)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// No name: what an unused place in shared memory holds.
impl Default for Name {
    fn default() -> Name {
        Name { len: 0, bytes: [0; MAX_BYTES] }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl std::hash::Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_is_1_to_255_bytes() {
        assert_eq!(Name::new(b"").unwrap_err(), NameError::Empty);
        assert_eq!(Name::new(&[b'x'; 256]).unwrap_err(), NameError::TooLong);
        assert_eq!(Name::new(&[b'x'; 255]).unwrap().as_bytes(), &[b'x'; 255]);
        assert_eq!(Name::new(b"a").unwrap().as_bytes(), b"a");
    }

    #[test]
    fn equality_looks_at_the_bytes_in_use_only() {
        assert_eq!(Name::new(b"ab").unwrap(), Name::new(b"ab").unwrap());
        assert_ne!(Name::new(b"a\0").unwrap(), Name::new(b"a").unwrap());
    }
}
