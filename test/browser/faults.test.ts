/** The helper for tests of pages notices what pages must not do: without that, its other tests could not fail. */
import { createServer } from 'node:http'
import t from 'tap'
import { namedNodes, openBrowser, pixelsTooWide, WITHOUT_BROWSER } from '../support/browser.ts'
import { listening } from '../support/listening.ts'

const PAGES: Readonly<Record<string, string>> = {
  '/good': '<!doctype html><title>Good</title><h1>Good</h1><button>Go on</button>',
  '/console': '<script>console.error("broken")</script>',
  '/script': '<script>throw new Error("broken")</script>',
  '/failed': '<script src="/cut"></script>',
  '/absent': '<script src="/nowhere"></script>',
  '/elsewhere': '<script src="http://elsewhere.example/x.js"></script>',
  '/policy': '<style>h1 { color: red }</style><h1>Red</h1>',
  '/nameless': '<button></button><a href="/good"></a>',
  '/wide': '<p style="width: 1000px">Wide</p>',
}

t.test('faults of a page are seen', { skip: WITHOUT_BROWSER }, async t => {
  const server = createServer(({ url = '' }, response) => {
    const page = PAGES[url]
    if (url === '/cut') return void response.destroy()
    if (url === '/favicon.ico') return void response.writeHead(204).end()
    if (page === undefined) return void response.writeHead(404).end()
    const policy = url === '/policy' ? { 'content-security-policy': "default-src 'none'" } : {}
    response.writeHead(200, { 'content-type': 'text/html', ...policy }).end(page)
  })
  const { url: origin } = await listening(server, t)
  const browser = await openBrowser(t)
  const visit = await browser.visit({ origin, width: 320 })
  const faultsOf = async (path: string) => {
    await visit.page.goto(origin + path)
    return await visit.faults()
  }
  t.same(await faultsOf('/good'), [])
  t.same(await namedNodes(visit), [
    { role: 'heading', name: 'Good' },
    { role: 'button', name: 'Go on' },
  ])
  t.equal(await pixelsTooWide(visit.page), 0)
  t.match(await faultsOf('/console'), [/^console: broken/])
  t.match(await faultsOf('/script'), [/^script: Error: broken/])
  t.ok((await faultsOf('/failed')).some(fault => fault.startsWith('failed: ')))
  t.ok((await faultsOf('/absent')).some(fault => /^console: .*404/.test(fault)))
  t.ok((await faultsOf('/elsewhere')).some(fault => fault === 'elsewhere: http://elsewhere.example/x.js'))
  t.ok((await faultsOf('/policy')).some(fault => fault.startsWith('console: policy: style-src')))
  await faultsOf('/nameless')
  t.same(
    (await namedNodes(visit)).map(({ name }) => name),
    ['', ''],
  )
  await faultsOf('/wide')
  t.ok((await pixelsTooWide(visit.page)) > 600)
})
