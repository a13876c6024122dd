/**
 * Renders the Markdown of this repository as HTML: headings with the anchors that code hosts give them, links to pages
 * of the guide, and tables and code that scroll on their own. Plain JavaScript, like all of the generator.
 */
import MarkdownIt from 'markdown-it'

/** Made by programs, or for them. */
const COMMENT = /^<!--.*-->$/gm

/** The anchor of a heading. Those with the same text get a number. */
function slugs() {
  const seen = new Map()
  return text => {
    const slug = text
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\p{M}_\- ]/gu, '')
      .replaceAll(' ', '-')
    const times = seen.get(slug) ?? 0
    seen.set(slug, times + 1)
    return times === 0 ? slug : `${slug}-${times}`
  }
}

const textOf = token =>
  (token.children ?? [])
    .filter(({ type }) => type === 'text' || type === 'code_inline')
    .map(({ content }) => content)
    .join('')

const markdown = new MarkdownIt({ html: false })
const { escapeHtml } = markdown.utils

const plainLink =
  markdown.renderer.rules.link_open ??
  ((tokens, at, options, _, self) => self.renderToken(tokens, at, options))
markdown.renderer.rules.link_open = (tokens, at, options, env, self) => {
  const href = env.link(tokens[at].attrGet('href') ?? '')
  if (href === null) {
    // What the guide does not have is named, and is no link.
    env.unlinked.push(true)
    return '<span>'
  }
  env.unlinked.push(false)
  tokens[at].attrSet('href', href)
  return plainLink(tokens, at, options, env, self)
}
markdown.renderer.rules.link_close = (_tokens, _at, _options, env) =>
  env.unlinked.pop() ? '</span>' : '</a>'

const plainImage = markdown.renderer.rules.image
markdown.renderer.rules.image = (tokens, at, options, env, self) => {
  tokens[at].attrSet('src', env.link(tokens[at].attrGet('src') ?? '') ?? '')
  return plainImage(tokens, at, options, env, self)
}

markdown.renderer.rules.heading_close = (tokens, at, options, _, self) => {
  const id = tokens[at - 2].attrGet('id')
  const link = `<a class="anchor" href="#${escapeHtml(id)}" aria-label="Link to ${escapeHtml(textOf(tokens[at - 1]))}">#</a>`
  return ` ${link}${self.renderToken(tokens, at, options)}`
}
markdown.renderer.rules.table_open = (tokens, at) => {
  const label = escapeHtml(`Table: ${tokens[at].meta}`)
  return `<div class="wide" tabindex="0" role="region" aria-label="${label}"><table aria-label="${label}">\n`
}
markdown.renderer.rules.table_close = () => '</table></div>\n'
// The policy of the pages allows no style in them.
const aligned = token => (token.attrGet('style')?.includes('right') ? ' class="right"' : '')
markdown.renderer.rules.th_open = (tokens, at) => `<th scope="col"${aligned(tokens[at])}>`
markdown.renderer.rules.td_open = (tokens, at) => `<td${aligned(tokens[at])}>`
markdown.renderer.rules.fence = (tokens, at) => {
  const { info, content } = tokens[at]
  const language = info.trim().split(/\s/)[0] || 'text'
  return `<pre tabindex="0" role="region" aria-label="Example: ${escapeHtml(language)}"><code>${escapeHtml(content)}</code></pre>\n`
}

/**
 * One page.
 * @param link gives the address of what a link leads to; null: it is nothing that the guide has
 * @returns {{ title: string, html: string, headings: { id: string, text: string }[], sections: { id: string,
 * heading: string, text: string }[] }} headings of the second level; a section ends where the next heading begins
 */
export function renderPage(source, link) {
  const env = { link, unlinked: [] }
  const tokens = markdown.parse(source.replace(COMMENT, ''), env)
  const slug = slugs()
  const headings = []
  const sections = []
  let title = ''
  for (const [at, token] of tokens.entries()) {
    if (token.type === 'heading_open') {
      const text = textOf(tokens[at + 1])
      const id = slug(text)
      token.attrSet('id', id)
      if (token.tag === 'h1') {
        if (title === '') title = text
        else {
          // A page has one title.
          token.tag = 'h2'
          tokens[at + 2].tag = 'h2'
        }
      }
      if (token.tag === 'h2') headings.push({ id, text })
      sections.push({ id, heading: text, text: '' })
    } else if (token.type === 'inline' && tokens[at - 1]?.type !== 'heading_open') {
      addText(sections, textOf(token))
    } else if (token.type === 'table_open') token.meta = sections.at(-1)?.heading ?? ''
    else if (token.type === 'fence') addText(sections, token.content)
  }
  return { title, html: markdown.renderer.render(tokens, markdown.options, env), headings, sections }
}

function addText(sections, text) {
  const last = sections.at(-1)
  if (last !== undefined) last.text += `${text}\n`
}
