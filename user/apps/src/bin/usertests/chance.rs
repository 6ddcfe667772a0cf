//! Random numbers.

use cops::abi::Errno::{EFAULT, EINVAL};
use cops::abi::syscall::GETRANDOM;

use crate::harness::Outcome;
use crate::raw::BAD_ADDRESSES;
use crate::{check, check_equal, raw, tests};

tests! { chance:
    differs,
    lengths,
    refused,
}

fn draw<const COUNT: usize>() -> Result<[u8; COUNT], crate::harness::Failure> {
    let mut bytes = [0; COUNT];
    check_equal!(
        raw::call(GETRANDOM, [bytes.as_mut_ptr().addr(), COUNT, 0])?,
        COUNT,
        "bytes drawn"
    );
    Ok(bytes)
}

/// No two results are equal, and every byte changes.
async fn differs() -> Outcome {
    let first = draw::<32>()?;
    let mut changed = [false; 32];
    let mut last = first;
    for _ in 0..64 {
        let next = draw::<32>()?;
        check!(next != last && next != first, "the same 32 bytes twice");
        changed
            .iter_mut()
            .zip(next.iter().zip(&first))
            .for_each(|(changed, (a, b))| *changed |= a != b);
        last = next;
    }
    check!(changed.iter().all(|&changed| changed), "bytes that never change: {changed:?}");
    Ok(())
}

/// The requested bytes are filled, up to 256, and nothing beyond.
async fn lengths() -> Outcome {
    for length in [0, 1, 15, 16, 17, 255, 256, 257, 1000] {
        let given = length.min(256);
        let mut union = [0u8; 1001];
        for _ in 0..32 {
            let mut bytes = [0u8; 1001];
            check_equal!(
                raw::call(GETRANDOM, [bytes.as_mut_ptr().addr(), length, 0])?,
                given,
                "bytes drawn"
            );
            union.iter_mut().zip(bytes).for_each(|(union, byte)| *union |= byte);
        }
        check!(union[..given].iter().all(|&byte| byte != 0), "{length}: a byte was never filled");
        check!(union[given..].iter().all(|&byte| byte == 0), "{length}: written beyond the end");
    }
    Ok(())
}

async fn refused() -> Outcome {
    for &bad in BAD_ADDRESSES {
        raw::refused("getrandom", GETRANDOM, [bad, 32, 0], &[EFAULT])?;
    }
    let mut bytes = [0u8; 8];
    raw::refused("getrandom's flags", GETRANDOM, [bytes.as_mut_ptr().addr(), 8, 8], &[EINVAL])?;
    check_equal!(bytes, [0; 8], "bytes of a call that failed");
    Ok(())
}
