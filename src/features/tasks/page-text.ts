/**
 * Makes a fetched page readable: decodes its charset, converts the main content of HTML to Markdown (without scripts
 * and navigation, and with the alternative texts of images), and leaves other text unchanged. Pages are hostile: bytes,
 * tags, depth and the length of the text are bounded, no script runs and nothing is loaded. A page that exceeds the
 * bounds is read without a document tree, and the deadline of the pool ends slow work. Pure; task worker, bulk.
 */
import { Readability } from '@mozilla/readability'
import { parseHTML } from 'linkedom'
import { DOCUMENT_MAX_BYTES, DOCUMENT_MAX_MIB } from '../../protocol/limits.ts'
import { type MarkdownNode, markdownOf } from './markdown.ts'
import { plainHtml } from './plain-html.ts'
import { TaskFailure } from './task.ts'

export interface PageTextInput {
  readonly bytes: Uint8Array
  /** Media type in lower case, without parameters. */
  readonly type: string
  /** The charset in the header; null: none. */
  readonly charset: string | null
  /** The address of the page, for its relative links. */
  readonly url: string
  readonly maxChars: number
  /** True builds no document tree, for a page whose tree took too long. */
  readonly plain?: boolean
}

interface PageTextOutput {
  readonly title: string
  readonly text: string
  /** True if the text was cut. */
  readonly cut: boolean
}

/**
 * Beyond these no tree is built: it needs a kilobyte per node, and the reader's time grows with the square of the
 * depth.
 */
const MAX_TREE_CHARS = 4_000_000
const MAX_TREE_TAGS = 40_000
const MAX_TREE_ENTITIES = 50_000
const MAX_DEPTH = 100
/** Maximum characters of the main content that become Markdown. */
const MAX_CONTENT_CHARS = 1_500_000
const MAX_TITLE_CHARS = 500
/** Bytes in which a page may name its charset. */
const META_BYTES = 4_096
const HTML_TYPES: ReadonlySet<string> = new Set(['text/html', 'application/xhtml+xml'])

/** The parts of the document tree that are used here; the library's own types need browser types. */
interface Node extends MarkdownNode {
  readonly parentNode: Node | null
  readonly firstElementChild: Node | null
  readonly nextElementSibling: Node | null
  setAttribute(name: string, value: string): void
  remove(): void
  replaceWith(...nodes: (Node | string)[]): void
  querySelectorAll(selector: string): Iterable<Node>
}
interface Tree extends Node {
  readonly documentElement: Node | null
  readonly body: Node
  querySelector(selector: string): Node | null
}

/** @throws TaskFailure `too_large` */
export function pageText({ bytes, type, charset, url, maxChars, plain }: PageTextInput): PageTextOutput {
  if (bytes.byteLength > DOCUMENT_MAX_BYTES)
    throw new TaskFailure('too_large', `the page is larger than ${DOCUMENT_MAX_MIB} MiB`)
  const isHtml = HTML_TYPES.has(type)
  const text = decode(bytes, charset ?? (isHtml ? metaCharset(bytes) : null))
  const page = isHtml ? readHtml(text, url, maxChars, plain === true) : { title: '', text }
  return {
    title: page.title.slice(0, MAX_TITLE_CHARS).toWellFormed().replace(/\s+/g, ' ').trim(),
    text: page.text.slice(0, maxChars).toWellFormed(),
    cut: page.text.length > maxChars,
  }
}

function readHtml(
  html: string,
  url: string,
  maxChars: number,
  plain: boolean,
): { title: string; text: string } {
  const tree = plain || !isSmallEnough(html) ? null : treeOf(html)
  if (tree === null) return { title: plainTitle(html), text: plainHtml(html, maxChars + 1) }
  const title = titleOf(tree)
  const main = mainContent(tree)
  if (main !== null) return { title: title || main.title, text: markdown(main.content, url, maxChars) }
  return { title, text: markdown(html, url, maxChars) }
}

/** True if a document tree may be built. */
function isSmallEnough(html: string): boolean {
  if (html.length > MAX_TREE_CHARS) return false
  return isAtMost(html, '<', MAX_TREE_TAGS * 2) && isAtMost(html, '&', MAX_TREE_ENTITIES)
}

function isAtMost(text: string, mark: string, countMax: number): boolean {
  let count = 0
  for (let index = text.indexOf(mark); index !== -1; index = text.indexOf(mark, index + 1))
    if (++count > countMax) return false
  return true
}

/** Null for a tree that is too deep. A page without an html element gets one. */
function treeOf(html: string): Tree | null {
  const document = /<html[\s>]/i.test(html.slice(0, META_BYTES))
    ? html
    : `<!doctype html><html><body>${html}</body></html>`
  const tree = parseHTML(document).document as unknown as Tree
  return tree.documentElement !== null && isShallow(tree.documentElement) ? tree : null
}

function isShallow(root: Node): boolean {
  let depth = 0
  for (let node: Node | null = root; node !== null; ) {
    if (node.firstElementChild !== null) {
      if (++depth > MAX_DEPTH) return false
      node = node.firstElementChild
      continue
    }
    while (node !== null && node !== root && node.nextElementSibling === null) {
      node = node.parentNode
      depth--
    }
    node = node === null || node === root ? null : node.nextElementSibling
  }
  return true
}

function mainContent(tree: Tree): { title: string; content: string } | null {
  try {
    const article = new Readability(tree as never, {
      charThreshold: 200,
      maxElemsToParse: MAX_TREE_TAGS,
    }).parse()
    const content = article?.content ?? ''
    return content === '' || content.length > MAX_CONTENT_CHARS
      ? null
      : { title: article?.title ?? '', content }
  } catch {
    // The library cannot process this tree.
    return null
  }
}

function markdown(html: string, url: string, maxChars: number): string {
  if (html.length > MAX_CONTENT_CHARS) return plainHtml(html, maxChars + 1)
  const tree = treeOf(html)
  if (tree === null) return plainHtml(html, maxChars + 1)
  for (const node of tree.querySelectorAll(
    'script,style,title,noscript,template,iframe,svg,nav,form,button,head',
  ))
    node.remove()
  for (const image of tree.querySelectorAll('img,picture')) image.replaceWith(image.getAttribute('alt') ?? '')
  for (const link of tree.querySelectorAll('a')) resolveLink(link, url)
  const markdownText = markdownOf(tree.body)
  return markdownText === '' ? plainHtml(html, maxChars + 1) : markdownText
}

/** Links become absolute addresses; links that are not web addresses become their text. */
function resolveLink(link: Node, base: string): void {
  const href = link.getAttribute('href') ?? ''
  const url = URL.canParse(href, base) ? new URL(href, base) : null
  if (url !== null && /^https?:$/.test(url.protocol) && url.href.length <= 2_048)
    link.setAttribute('href', url.href)
  else link.replaceWith(link.textContent)
}

function titleOf(tree: Tree): string {
  const title = tree.querySelector('meta[property="og:title"]')?.getAttribute('content')
  return tree.querySelector('title')?.textContent || title || tree.querySelector('h1')?.textContent || ''
}

function plainTitle(html: string): string {
  const open = html.slice(0, 65_536).search(/<title[\s>]/i)
  if (open === -1) return ''
  const start = html.indexOf('>', open) + 1
  const end = html.slice(start, start + MAX_TITLE_CHARS * 2).search(/<\/title/i)
  return start === 0 || end === -1 ? '' : plainHtml(html.slice(start, start + end), MAX_TITLE_CHARS)
}

/** Unknown charsets are read as UTF-8, or as Windows-1252 if the bytes are not UTF-8. */
function decode(bytes: Uint8Array, charset: string | null): string {
  if (charset !== null) {
    try {
      return new TextDecoder(charset).decode(bytes)
    } catch {
      // The charset does not exist.
    }
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    return new TextDecoder('windows-1252').decode(bytes)
  }
}

function metaCharset(bytes: Uint8Array): string | null {
  const head = new TextDecoder('latin1').decode(bytes.subarray(0, META_BYTES))
  return /<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})/i.exec(head)?.[1] ?? null
}
