// What the theme makes of code and tables: regions that scroll by mouse alone, and landmarks without a name.
const named = () => {
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((region) => (region.tabIndex = 0));
  document.querySelectorAll(".md-code__nav").forEach((nav) => nav.setAttribute("aria-label", nav.parentElement.id));
};
new MutationObserver(named).observe(document.body, { childList: true, subtree: true });
named();
