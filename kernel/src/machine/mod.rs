//! What is known of the machine and of the kernel's place in it: the device tree's contents, the
//! layout of the address space, and the parts of the kernel's image.

#[allow(unsafe_code)]
pub mod device_tree;
#[allow(unsafe_code)]
pub mod image;
pub mod layout;

/// Maximum number of harts that the kernel uses. Further harts of the machine are not started.
pub const MAX_HARTS: usize = 8;
