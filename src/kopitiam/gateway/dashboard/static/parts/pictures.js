// Charts: SVG drawn by the gateway, inserted into the page after a check against closed lists.

const SVG = "http://www.w3.org/2000/svg";
const ELEMENTS = new Set(["svg", "g", "path", "line", "text", "title"]);
const ATTRIBUTES = new Set(
  "aria-label class d fill fill-opacity font-family font-size height opacity role stroke stroke-dasharray stroke-width text-anchor transform viewBox width x1 x2 y1 y2".split(
    " ",
  ),
);
const PLAIN = /^[-#%.,\s\w()]*$/;
const REFERENCE = /url|var/i;
const OWN_STYLE = /^(<svg[^>]*>)<style>[^<]*<\/style>/;

/** An SVG element of this document. Throws if the text holds anything but shapes, texts and their looks. */
export function pictureOf(text) {
  const unstyled = text.replace(OWN_STYLE, "$1"); // the page has its own, and its policy forbids others
  const { documentElement: root } = new DOMParser().parseFromString(unstyled, "image/svg+xml");
  if (root.localName !== "svg" || root.namespaceURI !== SVG) throw new Error("this is no picture");
  for (const element of [root, ...root.querySelectorAll("*")]) require(element);
  return document.adoptNode(root);
}

function require({ namespaceURI, localName, attributes }) {
  if (namespaceURI !== SVG || !ELEMENTS.has(localName)) throw new Error(`a picture with ${localName}`);
  for (const { name, value } of attributes) {
    if (name === "xmlns") continue;
    const isPlain = name === "aria-label" || (PLAIN.test(value) && !REFERENCE.test(value));
    if (!ATTRIBUTES.has(name) || !isPlain) throw new Error(`a picture with ${name}="${value.slice(0, 40)}"`);
  }
}
