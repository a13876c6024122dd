/** The pictures of the console in docs/, from a page that is filled here. SCREENSHOTS=1 draws them anew. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t from 'tap'
import { openStore } from '../../src/storage/open.ts'
import { openBrowser, screenshot, WITHOUT_BROWSER } from '../support/browser.ts'
import type { ConsoleWorld } from '../support/console-world.ts'
import { sizeOf, withPalette } from '../support/png.ts'
import { eventually } from '../support/stream-probe.ts'
import { openConsole } from './console-page.ts'
import { beginBatch } from './console-walk.ts'

const DOCS = join(import.meta.dirname, '../../docs')
const BYTES_MAX = 100_000
const DAY_MS = 86_400_000
const MODELS = ['acme/large-2', 'acme/fast-1', 'nova/write-3', 'nova/think-3'] as const

interface Picture {
  readonly name: string
  readonly view: string
  readonly colorScheme?: 'dark'
  readonly width?: number
  readonly height: number
  /** Brings the page into the state of the picture. */
  readonly show: (page: Page, world: ConsoleWorld) => Promise<void>
}

const table = (name: string) => (page: Page) =>
  page.getByRole('table', { name, exact: true }).first().waitFor()

const PICTURES: readonly Picture[] = [
  {
    name: 'console',
    view: 'home',
    colorScheme: 'dark',
    height: 800,
    async show(page) {
      await page.getByRole('button', { name: '24 h' }).click()
      await page.getByRole('figure', { name: 'Cost/min' }).locator('canvas').waitFor()
      await table('Models of the last 15 minutes')(page)
    },
  },
  {
    name: 'console-requests',
    view: 'requests',
    width: 1720,
    height: 800,
    async show(page) {
      await page
        .getByRole('row', { name: /falls-back/ })
        .first()
        .getByRole('button')
        .click()
      await page.getByRole('region', { name: 'Request', exact: true }).getByText('input tokens').waitFor()
    },
  },
  {
    name: 'console-narrow',
    view: 'requests',
    colorScheme: 'dark',
    width: 320,
    height: 640,
    show: table('Last requests, newest first'),
  },
  { name: 'console-usage', view: 'usage', height: 800, show: table('Usage') },
  {
    name: 'console-keys',
    view: 'accounts',
    height: 620,
    async show(page) {
      await page.getByRole('table', { name: 'API keys' }).getByText('Website', { exact: true }).waitFor()
      await page.getByRole('table', { name: 'Workspaces' }).getByText('research', { exact: true }).waitFor()
    },
  },
  { name: 'console-models', view: 'models', colorScheme: 'dark', height: 620, show: table('Wildcards') },
  {
    name: 'console-guardrails',
    view: 'guardrails',
    height: 860,
    async show(page) {
      await page
        .getByRole('combobox', { name: 'Guardrail', exact: true })
        .selectOption({ label: 'Support desk' })
      await page.getByLabel('Text', { exact: true }).fill('Please answer ada@example.com about ACME-123456.')
      await page.getByRole('button', { name: 'Check' }).click()
      await page.getByLabel('The text that would be sent').waitFor()
      await page.getByRole('table', { name: 'Budgets of Support desk' }).waitFor()
    },
  },
  {
    name: 'console-batches',
    view: 'batches',
    height: 300,
    async show(page) {
      await page.getByText('completed', { exact: true }).waitFor()
      await page.getByText('in_progress', { exact: true }).waitFor()
    },
  },
  {
    name: 'console-playground',
    view: 'playground',
    colorScheme: 'dark',
    height: 1080,
    async show(page, world) {
      await page.getByLabel('API key').fill(world.gateway.apiKey)
      await page
        .getByLabel('Question')
        .fill('# Release notes\n\n- **Streams** go on after a reload\n- `sluice top` shows money')
      await page.getByLabel('Model', { exact: true }).fill('acme/fast-1')
      await page.getByRole('button', { name: 'Compare another model' }).click()
      await page.getByLabel('Model 2').fill('nova/write-3')
      await page.getByRole('button', { name: 'Send' }).click()
      for (const at of [0, 1])
        await page.locator('.lane').nth(at).getByText('done', { exact: true }).waitFor()
      await page.getByRole('button', { name: 'Python' }).click()
    },
  },
]

t.test('pictures of the console', { skip: WITHOUT_BROWSER }, async t => {
  const { world, open } = await openConsole(t, {
    models: [
      ...MODELS.map((id, at) => ({
        id,
        contextLength: 128_000 << (at % 2),
        endpoints: [
          {
            provider: 'sim',
            upstreamModel: at < 2 ? 'echo' : 'write',
            pricing: {
              prompt: `0.00000${at + 1}5`,
              completion: `0.0000${at + 1}`,
              inputCacheRead: '0.0000002',
            },
          },
        ],
      })),
      {
        id: 'acme/falls-back',
        endpoints: [
          { provider: 'down', upstreamModel: 'any' },
          { provider: 'sim', upstreamModel: 'echo' },
        ],
      },
      { id: 'acme/slow', endpoints: [{ provider: 'sim', upstreamModel: 'write-300-2000' }] },
      { id: 'sandbox/*', endpoints: [{ provider: 'sim' }] },
    ],
    providers: [
      { slug: 'down', format: 'openai-responses', baseUrl: 'http://127.0.0.1:1/v1', apiKey: 'none' },
    ],
  })
  await fill(world)
  for (const { name, view, show, ...options } of PICTURES) {
    await t.test(name, async t => {
      const visit = await open(view, options)
      await show(visit.page, world)
      await visit.page.mouse.move(0, 0)
      await screenshot(visit.page, name)
      t.same(await visit.faults(), [])
      await visit.context.close()
    })
  }

  await t.test('docs show each, and each is small', async t => {
    const images = readdirSync(join(DOCS, 'images')).filter(name => name.startsWith('console'))
    t.same(new Set(images), new Set(PICTURES.map(({ name }) => `${name}.png`)))
    const page = readFileSync(join(DOCS, 'console.md'), 'utf8')
    for (const { name, height, width = 1280 } of PICTURES) {
      const path = join(DOCS, 'images', `${name}.png`)
      t.match(page, `](images/${name}.png)`, 'it is in docs/console.md')
      t.ok(statSync(path).size <= BYTES_MAX, `${name} has ${statSync(path).size} bytes`)
      t.same(sizeOf(readFileSync(path)), { width, height }, 'it is the picture of this test')
    }
  })

  await t.test('a picture with a palette looks the same', async t => {
    const browser = await openBrowser(t)
    const origin = world.gateway.adminUrl
    const { page } = await browser.visit({ origin, width: 40, height: 30 })
    const whole = await page.screenshot()
    const small = withPalette(whole)
    t.same(sizeOf(small), { width: 40, height: 30 })
    t.ok(small.length < 1_000)
    await page.setContent(
      `<body style="margin:0;background:rgb(10,107,138)"><img src="data:image/png;base64,${withPalette(await (await coloured(page)).screenshot()).toString('base64')}">`,
    )
    await page.evaluate(`document.querySelector('img').decode()`)
    t.same(withPalette(await page.screenshot()), withPalette(await (await coloured(page)).screenshot()))
  })
})

async function coloured(page: Page): Promise<Page> {
  await page.setContent(
    '<body style="margin:0;background:linear-gradient(90deg,red,blue)"><b style="color:white">Ag</b>',
  )
  return page
}

/** Days of usage, keys, workspaces, guardrails, and batches. */
async function fill(world: ConsoleWorld): Promise<void> {
  const { manage, respond } = world
  await manage('POST', '/workspaces', {
    name: 'Research',
    slug: 'research',
    description: 'Papers and trials',
  })
  const made = new Map<string, { readonly key: string; readonly hash: string }>()
  for (const [name, limit, reset] of [
    ['Website', 5, 'daily'],
    ['Support desk', 40, 'weekly'],
    ['Reports', 300, 'monthly'],
  ] as const) {
    const { document } = await manage('POST', '/keys', { name, limit, limit_reset: reset })
    made.set(name, {
      key: String(document['key']),
      hash: String((document['data'] as { hash: string }).hash),
    })
  }
  await manage('POST', '/keys', { name: 'Dashboard', is_management_key: true, role: 'viewer' })
  await manage('POST', '/end-users', { user: 'ada' })
  const { data } = await manage('POST', '/guardrails', {
    name: 'Support desk',
    limit_usd: 8,
    reset_interval: 'daily',
    content_filter_builtins: [
      { slug: 'email', action: 'redact' },
      { slug: 'secrets', action: 'block' },
    ],
    content_filters: [{ pattern: '\\bACME-[0-9]{6}\\b', action: 'flag' }],
    output: { content_filter_builtins: [{ slug: 'phone', action: 'redact' }] },
  })
  const hashes = [...made.values()].map(({ hash }) => hash)
  await manage('POST', `/guardrails/${data['id']}/assignments/keys`, { key_hashes: hashes.slice(0, 2) })

  const store = await openStore(world.storageUrl)
  const now = Date.now()
  await store.ledger.add(
    Array.from({ length: 1_800 }, (_, at) => {
      // Spread over a month, more on working days, without chance.
      const [model, hash] = [MODELS[((at * 7) % 11) % 4] ?? '', hashes[((at * 5) % 7) % 3] ?? '']
      const createdAt = new Date(now - ((at * 37) % 1_800) * (DAY_MS / 62) - at).toISOString()
      return {
        id: `gen-${1_700_000_000 + at}-picture`,
        createdAt,
        organizationId: 'org_default',
        workspaceId: 'ws_default',
        keyHash: hash,
        model,
        provider: 'sim',
        providerName: 'Simulator',
        outcome: at % 50 === 0 ? ('failed' as const) : ('completed' as const),
        accounting: 'exact' as const,
        inputTokens: 900 + (at % 13) * 40,
        outputTokens: 200 + (at % 7) * 60,
        cost: (20 + ((at * 13) % 29)) * 1e9 * (at % 9 === 0 ? 3 : 1),
        latencyMs: 900 + (at % 17) * 90,
        generationMs: 500 + (at % 11) * 60,
      }
    }),
  )
  await store.close()

  await beginBatch(world, 'acme/fast-1')
  await beginBatch(world, 'acme/slow')
  for (let at = 0; at < 24; at++) {
    const input = at % 5 === 0 ? 'Write to ada@example.com about the plan' : 'A question about the plan'
    const [name, model] = [[...made.keys()][at % 2] ?? '', MODELS[at % 4]]
    await respond({ model, input, user: 'ada', stream: true }, made.get(name)?.key)
  }
  await respond({ model: 'acme/falls-back', input: 'x' })
  await respond({ model: 'sandbox/absent', input: 'x' })
  const isStored = async () => (await manage('GET', '/generations?model=acme/falls-back')).list.length === 1
  if (!(await eventually(isStored, 60_000))) throw new Error('the records are not stored')
}
