//! SVG that shrinks with the page.

/// A page narrower than the picture gets a smaller picture, not a part of it: the style of the outermost element.
pub(crate) fn scaling(svg: &str, style: &str) -> String {
    svg.replacen("<svg ", &format!("<svg style=\"{style}\" "), 1)
}
