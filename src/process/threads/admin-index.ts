/**
 * The index page (`/`) of the admin port: links to its other pages. It loads nothing and has no style or script. Pure.
 */

interface AdminPage {
  readonly path: string
  readonly description: string
}

const CONSOLE: AdminPage = {
  path: '/console',
  description: 'requests, models, keys, batches, live; for a management key',
}

const GUIDE: AdminPage = { path: '/guide', description: 'the docs: start, use, operate, understand' }

/** In the order of the page. A page of the admin port is one row. */
const PAGES: readonly AdminPage[] = [
  { path: '/docs', description: 'the reference for everything that a client can request' },
  { path: '/metrics', description: 'metrics of all threads, in the text format of Prometheus' },
  { path: '/healthz', description: 'liveness of the process' },
  { path: '/readyz', description: 'readiness for traffic, and the parts that are missing' },
]

interface OfferedPages {
  readonly console: boolean
  readonly guide: boolean
}

export function adminIndex(offering: OfferedPages): string {
  const pages = [...(offering.console ? [CONSOLE] : []), ...(offering.guide ? [GUIDE] : []), ...PAGES]
  const rows = pages.map(({ path, description }) => `<li><a href="${path}">${path}</a>: ${description}</li>`)
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: admin port</title>
</head>
<body>
<main>
<h1>Sluice</h1>
<p>This is the admin port of a gateway to AI model providers. Requests to models go to its public port.</p>
<ul>
${rows.join('\n')}
</ul>
</main>
</body>
</html>
`
}
