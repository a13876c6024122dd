/** The style of the reference page: system fonts, light and dark mode, from a width of 320 px. Pure. */
export const PAGE_STYLE = `
:root {
  --text: #1b1f24; --quiet: #57606a; --page: #fff; --panel: #f3f5f7; --line: #8c959f; --link: #0550ae;
  --get: #0550ae; --post: #116329; --put: #7d4e00; --delete: #a40e26;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6edf3; --quiet: #a6b0ba; --page: #0d1117; --panel: #161b22; --line: #6e7681; --link: #79b8ff;
    --get: #79b8ff; --post: #7ee787; --put: #e3b341; --delete: #ff9790;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body {
  margin: 0 auto; max-width: 80rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; font-weight: 600; }
h4 { font-size: 1rem; margin: 1rem 0 0; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, pre:focus-visible, input:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -100vw; }
.skip:focus { position: static; }
[hidden] { display: none; }
article { margin: 1.5rem 0; padding: 1rem; background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
article > p { margin: 0.5rem 0; }
.title { display: flex; gap: 0.75rem; align-items: baseline; justify-content: space-between; }
.method { display: inline-block; padding: 0 0.4em; border: 1px solid currentColor; border-radius: 4px; }
nav .method { border: 0; padding: 0; font-size: 0.85em; font-weight: 600; }
.GET, .HEAD { color: var(--get); } .POST { color: var(--post); } .PUT, .PATCH { color: var(--put); } .DELETE { color: var(--delete); }
.quiet, .type { color: var(--quiet); }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { margin: 0.5rem 0; padding: 0.75rem; overflow-x: auto; overflow-wrap: normal; background: var(--page); border: 1px solid var(--line); }
summary { min-height: 24px; padding: 0.2rem 0; cursor: pointer; }
ul { margin: 0.25rem 0; padding-left: 1.1rem; }
li { margin: 0.2rem 0; }
nav a { display: inline-block; min-height: 24px; }
nav ul { padding-left: 0; list-style: none; }
fieldset { margin: 0.5rem 0; padding: 0.25rem 0.5rem; border: 1px solid var(--line); border-radius: 6px; }
fieldset label { display: inline-block; margin-right: 0.75rem; min-height: 24px; }
input[type=search] {
  inline-size: 100%; padding: 0.35rem; font: inherit; color: var(--text); background: var(--page); border: 1px solid var(--line);
}
body:not(:has(#in-curl:checked)) pre.curl, body:not(:has(#in-python:checked)) pre.python,
body:not(:has(#in-javascript:checked)) pre.javascript { display: none; }
@media (min-width: 60rem) {
  .columns { display: grid; grid-template-columns: 19rem minmax(0, 1fr); gap: 2rem; }
  nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto; padding: 0.5rem 0.75rem 1rem 4px; }
}
@media (max-width: 30rem) {
  body { padding: 0.5rem; }
  article { padding: 0.5rem; }
  article ul { padding-left: 0.7rem; list-style-position: inside; }
}
`
