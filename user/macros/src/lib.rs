//! The `#[cops::main]` attribute.
//!
//! The macro examines only the tokens of the function: the few facts it needs are at fixed places,
//! and it leaves all other errors to the compiler. (A full parser would take most of the build time
//! of every program.)

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes `main` the program's main coroutine.
///
/// `main` may be `async` or not. It takes no argument or `cops::Arguments`, and returns any type
/// that implements `cops::process::Termination`: `()`, `ExitCode`, `Result`. When it returns, the
/// process ends, including all its other coroutines. The program itself must contain `#![no_std]`
/// and `#![no_main]`.
///
/// With `#[cops::main(explicit_runner)]`, a `main` that is not `async` is not run as a coroutine;
/// coroutines run when it calls `cops::task::run`.
///
/// With `#[cops::main(until_empty)]`, the process does not end when `main` returns, but when the
/// last coroutine has ended; its exit code is that of `main`.
#[proc_macro_attribute]
pub fn main(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut kind = None;
    for argument in attribute {
        let asked = match &argument {
            TokenTree::Ident(word) if kind.is_none() => match word.to_string().as_str() {
                "explicit_runner" => Some(Kind::Runner),
                "until_empty" => Some(Kind::UntilEmpty),
                _ => None,
            },
            _ => None,
        };
        if asked.is_none() {
            return error(
                "#[cops::main] takes no argument except `explicit_runner` or `until_empty`",
                argument.span(),
            );
        }
        kind = asked;
    }
    let kind = kind.unwrap_or(Kind::Coroutine);
    match Function::find(item.clone()) {
        Ok(function) if kind == Kind::Runner && function.is_async => error(
            "an explicit runner is not a coroutine, so it cannot be async",
            function.name.span(),
        ),
        Ok(function) => item.into_iter().chain(entry(&function, kind)).collect(),
        Err((message, span)) => error(message, span),
    }
}

/// What `main` is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A coroutine; the process ends with it.
    Coroutine,
    /// A coroutine; the process ends with the last one.
    UntilEmpty,
    /// No coroutine.
    Runner,
}

/// The relevant facts about the function.
struct Function {
    name: Ident,
    is_async: bool,
    takes_arguments: bool,
}

impl Function {
    fn find(item: TokenStream) -> Result<Self, (&'static str, Span)> {
        let mut tokens = item.into_iter().peekable();
        let mut is_async = false;
        while let Some(token) = tokens.next() {
            let TokenTree::Ident(word) = &token else { continue };
            match word.to_string().as_str() {
                "async" => is_async = true,
                "fn" => {
                    let Some(TokenTree::Ident(name)) = tokens.next() else { break };
                    return match tokens.next() {
                        Some(TokenTree::Group(parameters))
                            if parameters.delimiter() == Delimiter::Parenthesis =>
                        {
                            Ok(Self {
                                name,
                                is_async,
                                takes_arguments: !parameters.stream().is_empty(),
                            })
                        }
                        _ => Err(("main cannot be generic", name.span())),
                    };
                }
                _ => {}
            }
        }
        Err(("#[cops::main] can only be applied to a function", Span::call_site()))
    }
}

/// The function by which the library calls `main`:
///
/// ```text
/// #[unsafe(no_mangle)]
/// fn _cops_main(arguments: ::cops::Arguments) -> ::cops::private::Main {
///     ::cops::private::Box::pin(async move {
///         ::cops::private::Termination::report(main(arguments).await)
///     })
/// }
/// ```
///
/// The library calls this function outside of coroutines. For an explicit runner, it calls `main`
/// directly:
///
/// ```text
///     ::cops::process::exit(::cops::private::Termination::report(main(arguments)).0)
/// ```
///
/// With `until_empty`, the coroutine is passed to a function that runs it and all others:
///
/// ```text
///     ::cops::private::run_until_empty(::cops::private::Box::pin(async move { .. }))
/// ```
fn entry(function: &Function, kind: Kind) -> TokenStream {
    let runner = "#[unsafe(no_mangle)] fn _cops_main(arguments: ::cops::Arguments) -> ::cops::private::Main {
        ::cops::process::exit(::cops::private::Termination::report(__CALL__).0)
    }";
    let coroutine =
        "#[unsafe(no_mangle)] fn _cops_main(arguments: ::cops::Arguments) -> ::cops::private::Main {
        ::cops::private::Box::pin(async move { ::cops::private::Termination::report(__CALL__) })
    }";
    let until_empty =
        "#[unsafe(no_mangle)] fn _cops_main(arguments: ::cops::Arguments) -> ::cops::private::Main {
        ::cops::private::run_until_empty(::cops::private::Box::pin(async move {
            ::cops::private::Termination::report(__CALL__)
        }))
    }";
    let source = match kind {
        Kind::Runner => runner,
        Kind::Coroutine => coroutine,
        Kind::UntilEmpty => until_empty,
    };
    let arguments = if function.takes_arguments { "arguments" } else { "" };
    let awaited = if function.is_async { ".await" } else { "" };
    // An unused parameter must not cause a warning in the program.
    let ignore = if function.takes_arguments { "" } else { "let _ = arguments;" };
    let call = format!("{{ {ignore} __MAIN__({arguments}){awaited} }}");
    let tokens: TokenStream = match source.replace("__CALL__", &call).parse() {
        Ok(tokens) => tokens,
        Err(_) => return error("internal: the entry does not parse", Span::call_site()),
    };
    with_name(tokens, &function.name)
}

/// Replaces the template's placeholder with the function's own name and span, for error messages.
fn with_name(tokens: TokenStream, name: &Ident) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(word) if word.to_string() == "__MAIN__" => {
                TokenTree::Ident(name.clone())
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), with_name(group.stream(), name));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            other => other,
        })
        .collect()
}

/// `compile_error!(message)` at `span`.
fn error(message: &str, span: Span) -> TokenStream {
    let mut literal = Literal::string(message);
    literal.set_span(span);
    let arguments = Group::new(Delimiter::Parenthesis, TokenTree::Literal(literal).into());
    let mut tokens: [TokenTree; 4] = [
        Ident::new("compile_error", span).into(),
        Punct::new('!', Spacing::Alone).into(),
        arguments.into(),
        Punct::new(';', Spacing::Alone).into(),
    ];
    for token in &mut tokens {
        token.set_span(span);
    }
    TokenStream::from_iter(tokens)
}
