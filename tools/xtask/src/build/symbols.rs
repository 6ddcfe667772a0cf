//! The kernel's symbol table, for backtraces: `boot/kernel.sym` in the root image.
//!
//! One line per function, `ADDRESS NAME`, with the address in 16 hexadecimal digits, sorted, so
//! that the kernel can use binary search. The functions of the embedded vDSO are listed at the
//! addresses at which the kernel runs them.

use object::{Object, ObjectSymbol, SymbolKind};

use crate::error::{Because, Failure, Outcome};

/// The symbol at which the kernel's linker script puts the vDSO image.
const VDSO_START: &str = "__vdso_start";

/// The table for this kernel and this vDSO.
pub fn table(kernel: &[u8], vdso: &[u8]) -> Outcome<Vec<u8>> {
    let kernel = object::File::parse(kernel).because(|| "the kernel is no ELF file".into())?;
    let vdso = object::File::parse(vdso).because(|| "the vDSO is no ELF file".into())?;
    let vdso_start = address_of(&kernel, VDSO_START)?;
    let mut functions = functions(kernel.symbols(), 0);
    // An image without a symbol table still has its exports.
    let of_vdso = match vdso.symbol_table() {
        Some(_) => self::functions(vdso.symbols(), vdso_start),
        None => self::functions(vdso.dynamic_symbols(), vdso_start),
    };
    functions.extend(of_vdso);
    functions.sort();
    functions.dedup();
    let lines = functions.iter().map(|(address, name)| format!("{address:016x} {name}\n"));
    Ok(lines.collect::<String>().into_bytes())
}

/// The address of a symbol of `file`.
pub fn address_of(file: &object::File<'_>, name: &str) -> Outcome<u64> {
    let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
    found
        .map(|symbol| symbol.address())
        .ok_or_else(|| Failure::new(format!("the kernel has no symbol {name}")))
}

fn functions<'data>(
    symbols: impl Iterator<Item = impl ObjectSymbol<'data>>,
    base: u64,
) -> Vec<(u64, String)> {
    symbols
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            Some((base.wrapping_add(symbol.address()), readable(symbol.name().ok()?)))
        })
        .filter(|(_, name)| !name.is_empty())
        .collect()
}

/// The name without mangling and hash, on one line.
pub fn readable(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name)).replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_readable() {
        assert_eq!(readable("_ZN4core3ptr4read17h0123456789abcdefE"), "core::ptr::read");
        assert_eq!(readable("kernel_entry"), "kernel_entry");
        assert_eq!(readable("a\nb"), "a?b");
    }

    #[test]
    fn what_is_no_elf_is_refused() {
        assert!(table(b"MZ", b"").unwrap_err().to_string().contains("kernel is no ELF"));
    }
}
