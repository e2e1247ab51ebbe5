//! Plots of a simulation, by the extension of their file: SVG and a page of HTML. Both show the same drawing.

mod axis;
mod drawing;
mod html;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use plotters::prelude::SVGBackend;
use tidegate::Error;

use super::report::Report;
use super::table;
use crate::terminal::path_text;
use crate::{Result, invalid, unwritable};
use drawing::{Palette, SCALE};

/// Which colours a plot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Theme {
    /// As the reader's browser is set
    Auto,
    Light,
    Dark,
}

/// The kind of a plot, by the extension of its file.
enum Kind {
    Svg,
    Html,
}

/// Returns the kind of plot for a file. The command asks for it before it does any work.
fn kind(path: &Path) -> Result<Kind> {
    let refused = |why: &str| invalid(format!("--out {}: {why}", path_text(path)));
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let kind = match extension.as_deref() {
        Some("svg") => Kind::Svg,
        Some("html" | "htm") => Kind::Html,
        Some("png") => return Err(refused("PNG is not drawn; write a .svg, and convert it or open it in a browser")),
        _ => return Err(refused("the extension says what to draw, and this is neither .svg nor .html")),
    };
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(refused(&format!("there is no folder {}; make it first", path_text(folder)))),
        None => Ok(kind),
    }
}

/// Returns an error unless plots can be drawn into all these files.
pub(super) fn check(paths: &[PathBuf]) -> Result<()> {
    paths.iter().try_for_each(|path| kind(path).map(drop))
}

/// Draws and writes a plot.
pub(super) fn write(path: &Path, report: &Report, theme: Theme) -> Result<()> {
    let contents = match kind(path)? {
        Kind::Svg => svg(report, theme, true)?.into_bytes(),
        Kind::Html => html::page(report, &svg(report, theme, false)?, theme).into_bytes(),
    };
    std::fs::write(path, contents).map_err(|error| unwritable(path_text(path), &error))
}

fn undrawn(error: impl std::fmt::Display) -> Error {
    invalid(format!("the plot cannot be drawn: {error}; leave out --out, and report this"))
}

/// The drawing, with a title or for a page that has one. With `Theme::Auto`, its colours follow the reader.
fn svg(report: &Report, theme: Theme, titled: bool) -> Result<String> {
    let (mut svg, (width, height)) = (String::new(), drawing::size(report, titled));
    let backend = SVGBackend::with_string(&mut svg, (width, height));
    drawing::draw(backend, report, Palette::of(theme)).map_err(undrawn)?;
    let (tag, rest) = svg.split_once('>').ok_or_else(|| undrawn("it has no beginning"))?;
    // It is drawn in half pixels, so that curves are smooth.
    let halved = |tag: &str, name: &str, size: u32| {
        tag.replace(&format!("{name}=\"{size}\""), &format!("{name}=\"{}\"", size / SCALE))
    };
    let tag = halved(&halved(tag, "width", width), "height", height);
    let title = html::escaped(&table::title(report));
    let style = if theme == Theme::Auto { drawing::style_for_dark() } else { String::new() };
    let rest = rest.trim_start();
    Ok(format!("{tag} role=\"img\" style=\"max-width:100%;height:auto\">\n<title>{title}</title>\n{style}{rest}"))
}
