//! The root image: a read-only archive in memory, packed by the build and found through the device
//! tree.

pub use cops_algorithms::archive::{Archive, Node};
use cops_fallible::OutOfMemory;
use spin::Once;
use tar_no_std::{TarArchiveRef, TypeFlag};

/// Unit of the archive's sizes.
const BLOCK_BYTES: usize = 512;

static ROOT: Once<Archive> = Once::new();

/// Makes `archive` the root image; only the first call has an effect. Returns the number of files
/// in it.
///
/// # Panics
/// Without memory for the list of files, which can happen only at boot.
pub fn set_root(archive: &'static [u8]) -> usize {
    ROOT.call_once(|| read(archive).expect("there is memory for the list of files")).len()
}

/// The root image; empty if none was found.
pub fn root() -> &'static Archive {
    ROOT.call_once(Archive::default)
}

fn read(archive: &'static [u8]) -> Result<Archive, OutOfMemory> {
    let mut files = Archive::default();
    if let Ok(checked) = TarArchiveRef::new(archive) {
        for (block, header) in checked.headers() {
            let Ok(path) = header.name.as_str() else { continue };
            let Ok(kind) = header.typeflag.try_to_type_flag() else { continue };
            if kind == TypeFlag::SYMTYPE {
                if let Ok(target) = header.linkname.as_str() {
                    files.add_link(path, target)?;
                }
            } else if kind.is_regular_file() {
                let data = archive.get((block + 1) * BLOCK_BYTES..);
                let length = header.size.as_number::<usize>().ok();
                if let Some(data) = data.and_then(|data| data.get(..length?)) {
                    files.add(path, data)?;
                }
            }
        }
    }
    Ok(files)
}
