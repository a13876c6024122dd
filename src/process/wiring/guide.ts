/**
 * The guide on the admin port: the docs as pages, which `npm run docs` builds from docs/. Serves the built files,
 * changes only links of the first page, and caches no file. Main thread.
 */
import { readdirSync, statSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { extname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { SCRIPTED_PAGE_HEADERS } from '../../api/page-headers.ts'

const GUIDE_PATH = '/guide'

/** Also correct for the compiled gateway: `src` and `dist` are next to each other. */
const GUIDE_FOLDER = fileURLToPath(new URL('../../../dist/guide', import.meta.url))

const CONTENT_TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
}
const PLAIN_TEXT = 'text/plain; charset=utf-8'

interface GuideFile {
  readonly path: string
  readonly etag: string
}

const NOT_BUILT_PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: the guide is not built</title>
</head>
<body>
<main>
<h1>The guide is not built</h1>
<p>This clone has no pages of its docs yet. Build them in its folder, then load this page again:</p>
<pre>npm run docs</pre>
<p>Until then read the files in <code>docs/</code>, or the <a href="/docs">reference</a>.</p>
</main>
</body>
</html>
`

export class Guide {
  readonly #folder: string
  /** Keyed by path below `/guide/`, so that no request path reaches the disk. Empty until there are pages. */
  #files: ReadonlyMap<string, GuideFile> = new Map()

  constructor(folder = GUIDE_FOLDER) {
    this.#folder = folder
  }

  /** Answers requests for `/guide` and everything below it, and accepts no other path. */
  handle(request: IncomingMessage, response: ServerResponse, path: string): boolean {
    if (path !== GUIDE_PATH && !path.startsWith(`${GUIDE_PATH}/`)) return false
    if (this.#files.size === 0) this.#files = filesIn(this.#folder)
    if (this.#files.size === 0) send(response, 503, CONTENT_TYPES['.html'] ?? PLAIN_TEXT, NOT_BUILT_PAGE)
    else void this.#answer(request, response, path)
    return true
  }

  async #answer(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const name = path.slice(GUIDE_PATH.length + 1) || 'index.html'
    const file = this.#files.get(name)
    if (file === undefined) return send(response, 404, PLAIN_TEXT, 'not found\n')
    // Links of the first page are relative to its folder, which has to be in them if the path has no slash at its end.
    const isBare = path === GUIDE_PATH
    const etag = isBare ? file.etag.replace(/"$/, '-bare"') : file.etag
    const headers = { ...SCRIPTED_PAGE_HEADERS, etag }
    if (request.headers['if-none-match'] === etag) return void response.writeHead(304, headers).end()
    const type = CONTENT_TYPES[extname(name)] ?? PLAIN_TEXT
    try {
      const bytes = await readFile(file.path)
      const body = isBare ? bytes.toString().replace(/ (href|src)="\.\//g, ' $1="./guide/') : bytes
      response.writeHead(200, { ...headers, 'content-type': type }).end(body)
    } catch {
      // The guide was rebuilt in the meantime.
      this.#files = new Map()
      send(response, 503, PLAIN_TEXT, 'the guide is being built; try again\n')
    }
  }
}

function filesIn(folder: string): ReadonlyMap<string, GuideFile> {
  const files = new Map<string, GuideFile>()
  try {
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue
      const path = join(entry.parentPath, entry.name)
      const { size, mtimeMs } = statSync(path)
      const etag = `"${size.toString(36)}-${Math.floor(mtimeMs).toString(36)}"`
      files.set(relative(folder, path).split(sep).join('/'), { path, etag })
    }
  } catch {
    return new Map()
  }
  return files
}

function send(response: ServerResponse, status: number, type: string, text: string): void {
  response
    .writeHead(status, { ...SCRIPTED_PAGE_HEADERS, 'content-type': type, 'cache-control': 'no-store' })
    .end(text)
}
