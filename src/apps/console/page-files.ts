/**
 * The files of the page: HTML, scripts and style from `page/`, and three libraries from their packages. There is no
 * build step: they are served unchanged, except that scripts import packages by address. Each file is read on first
 * use, and cached.
 */
import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { SCRIPTED_PAGE_HEADERS } from '../../api/page-headers.ts'

interface PageFile {
  readonly type: string
  readonly bytes: Buffer
  readonly etag: string
}

const SCRIPT_TYPE = 'text/javascript; charset=utf-8'
const STYLE_TYPE = 'text/css; charset=utf-8'

/** Packages that scripts import by name, and the names of their files below `/console/assets/`. */
const LIBRARIES: Readonly<Record<string, string>> = {
  preact: 'preact.js',
  'preact/hooks': 'preact-hooks.js',
  htm: 'htm.js',
  'uplot/dist/uPlot.esm.js': 'uplot.js',
  'uplot/dist/uPlot.min.css': 'uplot.css',
}
const PACKAGE_BY_FILE: ReadonlyMap<string, string> = new Map(
  Object.entries(LIBRARIES).map(([specifier, name]) => [name, specifier]),
)

/** No path of a request reaches the disk: only names that are here are read. */
const OWN_FILES: ReadonlySet<string> = new Set(
  readdirSync(new URL('page/', import.meta.url), { recursive: true, encoding: 'utf8' })
    .map(name => name.replaceAll('\\', '/'))
    .filter(name => /\.(?:js|css|html)$/.test(name)),
)

/** A browser cannot resolve package names, and an import map would be an inline script. */
const PACKAGE_IMPORT = /(\bfrom\s*)(["'])([a-z][a-zA-Z./-]*)\2/g

const FILE_HEADERS = { ...SCRIPTED_PAGE_HEADERS, 'cross-origin-opener-policy': 'same-origin' } as const

export class PageFiles {
  readonly #files = new Map<string, Promise<PageFile>>()

  /** Sends the page, or one of its assets; false: there is no such file. */
  async send(name: string, request: IncomingMessage, response: ServerResponse): Promise<boolean> {
    const url = urlOf(name)
    if (url === null) return false
    let reading = this.#files.get(name)
    if (reading === undefined) {
      reading = readPageFile(url, typeOf(name))
      this.#files.set(name, reading)
    }
    const { type, bytes, etag } = await reading
    const headers = { ...FILE_HEADERS, etag }
    if (request.headers['if-none-match'] === etag) response.writeHead(304, headers).end()
    else
      response.writeHead(200, { ...headers, 'content-type': type, 'content-length': bytes.length }).end(bytes)
    return true
  }
}

/** Null for names that are not in a table: no path of a request reaches the disk. */
function urlOf(name: string): URL | null {
  const library = PACKAGE_BY_FILE.get(name)
  if (library !== undefined) return new URL(import.meta.resolve(library))
  return OWN_FILES.has(name) ? new URL(`page/${name}`, import.meta.url) : null
}

function typeOf(name: string): string {
  if (name.endsWith('.js')) return SCRIPT_TYPE
  return name.endsWith('.css') ? STYLE_TYPE : 'text/html; charset=utf-8'
}

async function readPageFile(url: URL, type: string): Promise<PageFile> {
  const text = await readFile(url, 'utf8')
  const bytes = Buffer.from(type === SCRIPT_TYPE ? withAddresses(text) : text)
  return { type, bytes, etag: `"${createHash('sha256').update(bytes).digest('hex').slice(0, 16)}"` }
}

/** The script with addresses instead of package names. */
function withAddresses(script: string): string {
  return script.replace(PACKAGE_IMPORT, (whole, from: string, quote: string, specifier: string) => {
    const name = LIBRARIES[specifier]
    return name === undefined ? whole : `${from}${quote}./${name}${quote}`
  })
}
