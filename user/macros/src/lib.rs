//! The `#[cops::main]` attribute.
//!
//! It reads a function by its tokens alone: the few facts it needs stand in fixed places, and what it does not
//! understand is left to the compiler to complain about. (A full parser would be most of the build time of
//! every program.)

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes `main` the program's main coroutine.
///
/// `main` may be `async` or not; it takes nothing or `cops::Arguments`; it returns anything that implements
/// `cops::process::Termination`: `()`, `ExitCode`, `Result`. When it returns, the process ends, with whatever other
/// coroutines there are. The program itself says `#![no_std]` and `#![no_main]`.
///
/// `#[cops::main(explicit_runner)]`, for a `main` that is not `async`: it is no coroutine, and coroutines run when it calls
/// `cops::task::run`.
#[proc_macro_attribute]
pub fn main(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut is_runner = false;
    for argument in attribute {
        match argument {
            TokenTree::Ident(word) if !is_runner && word.to_string() == "explicit_runner" => is_runner = true,
            other => return error("#[cops::main] takes nothing, or `explicit_runner`", other.span()),
        }
    }
    match Function::find(item.clone()) {
        Ok(function) if is_runner && function.is_async => {
            error("an explicit runner is no coroutine: it cannot be async", function.name.span())
        }
        Ok(function) => item.into_iter().chain(entry(&function, is_runner)).collect(),
        Err((message, span)) => error(message, span),
    }
}

/// What is to be known of the function.
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
                            Ok(Self { name, is_async, takes_arguments: !parameters.stream().is_empty() })
                        }
                        _ => Err(("main cannot be generic", name.span())),
                    };
                }
                _ => {}
            }
        }
        Err(("#[cops::main] belongs on a function", Span::call_site()))
    }
}

/// The function by which the library finds `main`:
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
/// The library calls it outside of coroutines. An explicit runner's `main` is called in there:
///
/// ```text
///     ::cops::process::exit(::cops::private::Termination::report(main(arguments)).0)
/// ```
fn entry(function: &Function, is_runner: bool) -> TokenStream {
    let runner = "#[unsafe(no_mangle)] fn _cops_main(arguments: ::cops::Arguments) -> ::cops::private::Main {
        ::cops::process::exit(::cops::private::Termination::report(__CALL__).0)
    }";
    let coroutine =
        "#[unsafe(no_mangle)] fn _cops_main(arguments: ::cops::Arguments) -> ::cops::private::Main {
        ::cops::private::Box::pin(async move { ::cops::private::Termination::report(__CALL__) })
    }";
    let source = if is_runner { runner } else { coroutine };
    let arguments = if function.takes_arguments { "arguments" } else { "" };
    let awaited = if function.is_async { ".await" } else { "" };
    // An unused parameter is no fault of the program's.
    let ignore = if function.takes_arguments { "" } else { "let _ = arguments;" };
    let call = format!("{{ {ignore} __MAIN__({arguments}){awaited} }}");
    let tokens: TokenStream = match source.replace("__CALL__", &call).parse() {
        Ok(tokens) => tokens,
        Err(_) => return error("internal: the entry does not parse", Span::call_site()),
    };
    with_name(tokens, &function.name)
}

/// Puts the function's own name, with its place in the source for error messages, where the template says so.
fn with_name(tokens: TokenStream, name: &Ident) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(word) if word.to_string() == "__MAIN__" => TokenTree::Ident(name.clone()),
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), with_name(group.stream(), name));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            other => other,
        })
        .collect()
}

/// `compile_error!(message)`, at `span`.
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
