// The page's policy lets only those <style> elements in that carry the nonce of this response.
// xterm.js makes some at run time; this gives them the nonce, and is loaded before it.

const nonce = document.getElementById("nonce").nonce;
const createElement = document.createElement;

document.createElement = function (name, options) {
  const element = createElement.call(this, name, options);
  if (String(name).toLowerCase() === "style") element.nonce = nonce;
  return element;
};
