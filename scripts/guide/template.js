/** The frame of every page of the guide: navigation, search, contents, and links to the previous and next page. */

export const safe = text =>
  text.replace(/[&<>"]/g, character => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[character])

/**
 * @param page title, html, headings and out (its address) of the page
 * @param parts name and pages (title, out) of each part, in order
 * @param relative gives the address of an address of the guide as the page has to name it
 */
export function framed({ page, parts, before, after, relative }) {
  const links = pages =>
    pages
      .map(({ title, out }) => {
        const here = out === page.out ? ' aria-current="page"' : ''
        return `<li><a href="${safe(relative(out))}"${here}>${safe(title)}</a></li>`
      })
      .join('\n')
  const navigation = parts
    .map(({ name, pages }) => `<h2>${safe(name)}</h2>\n<ul>\n${links(pages)}\n</ul>`)
    .join('\n')
  const contents =
    page.headings.length < 2
      ? ''
      : `<details class="contents"><summary>On this page</summary><ul>${page.headings
          .map(({ id, text }) => `<li><a href="#${safe(id)}">${safe(text)}</a></li>`)
          .join('')}</ul></details>`
  const step = (word, other) =>
    other === undefined ? '' : `<a href="${safe(relative(other.out))}">${word}: ${safe(other.title)}</a>`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${safe(page.title)}${page.title === 'Sluice' ? '' : ' · Sluice'}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${relative('assets/style.css')}">
<script type="module" src="${relative('assets/search.js')}"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the page</a>
<header>
<p class="name"><a href="${relative('index.html')}">Sluice guide</a></p>
<div id="search" role="search" hidden><label for="words">Search</label> <input id="words" type="search" autocomplete="off"><p id="found" role="status"></p><ul id="results"></ul></div>
<p class="to-pages"><a href="#pages">All pages</a></p>
</header>
<div class="columns">
<main id="main">
${page.html.replace('</h1>\n', end => `${end}${contents}\n`)}
<p class="steps">${step('Before', before)} ${step('Next', after)}</p>
</main>
<nav id="pages" aria-label="Pages">
${navigation}
</nav>
</div>
</body>
</html>
`
}
