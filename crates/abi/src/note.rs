//! The ELF note that marks a program as speaking the native COPS convention (SPEC, appendix A).

/// Name in the note, with its terminating zero.
pub const NAME: [u8; 5] = *b"COPS\0";
/// Type of the note that contains the ABI version as its descriptor.
pub const TYPE_ABI_VERSION: u32 = 1;
/// Version of everything in this crate. The kernel rejects programs of any other version.
pub const ABI_VERSION: u32 = 2;

/// The note as it is stored in the file: name size, descriptor size, type, padded name, descriptor.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Size of [`NAME`] including its zero: 5.
    pub name_bytes: u32,
    /// Size of the descriptor, one `u32`: 4.
    pub descriptor_bytes: u32,
    /// [`TYPE_ABI_VERSION`].
    pub kind: u32,
    /// [`NAME`], padded to a multiple of four.
    pub name: [u8; 8],
    /// [`ABI_VERSION`].
    pub version: u32,
}

impl Note {
    /// The note that a program built against this crate carries.
    pub const CURRENT: Note = Note {
        name_bytes: 5,
        descriptor_bytes: 4,
        kind: TYPE_ABI_VERSION,
        name: *b"COPS\0\0\0\0",
        version: ABI_VERSION,
    };
}

const _: () = assert!(size_of::<Note>() == 24);
