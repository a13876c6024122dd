/**
 * A walk through the console with the keyboard only. It checks each view with axe, in light and dark, and checks its
 * width.
 */
import { createServer } from 'node:http'
import type { Locator, Page } from 'playwright-core'
import type { Test } from 'tap'
import { pixelsTooWide, type Visit } from '../support/browser.ts'
import type { ConsoleWorld } from '../support/console-world.ts'
import { listening } from '../support/listening.ts'
import { eventually } from '../support/stream-probe.ts'
import { findings, WITHOUT_AXE } from './axe.ts'
import { openConsole } from './console-page.ts'

// A user with only a keyboard: moves to a control with Tab, operates it with keys, and checks where the
// focus is. Waits for states, never for time.

/** More stops than any view has. */
const STOPS_MAX = 1_500
/** Changes of direction after which a control cannot be reached: Tab goes past it. */
const TURNS_MAX = 6

/** A function of the page: its element is what the locator leads to. */
const inPage = (body: string) => new Function('element', body) as (element: unknown) => string

const WHERE = inPage(`
  const active = document.activeElement
  if (active === element) return 'here'
  if (active === null || active === document.body) return 'after'
  return active.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING ? 'after' : 'before'
`)
/** Names what is wrong with the focus of an element that has it. */
const UNSEEN = inPage(`
  const style = getComputedStyle(element)
  const { left, right, top, bottom } = element.getBoundingClientRect()
  const middle = (from, to, most) => Math.min(Math.max((Math.max(from, 0) + Math.min(to, most)) / 2, 0), most - 1)
  const above = document.elementFromPoint(middle(left, right, innerWidth), middle(top, bottom, innerHeight))
  const faults = []
  if (!element.matches(':focus-visible')) faults.push('not marked as focused')
  if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) === 0) faults.push('without an outline')
  if (right <= 0 || bottom <= 0 || left >= innerWidth || top >= innerHeight) faults.push('outside of the window')
  else if (above === null || !(element.contains(above) || above.contains(element))) faults.push('covered')
  return faults.join(', ')
`)
const NAME = `(element => element === null || element === document.body ? 'the page'
  : element.tagName.toLowerCase() + ' ' + (element.getAttribute('aria-label') ?? element.textContent).trim().slice(0, 60)
)(document.activeElement)`
/** Everything that Tab should stop at. */
const STOPS = `(() => {
  const open = document.querySelector('dialog[open]') ?? document
  return [...open.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter(element => !element.disabled && element.checkVisibility())
})()`

class Keyboard {
  readonly #page: Page

  constructor(page: Page) {
    this.#page = page
  }

  /** Goes to the control by Tab or Shift+Tab. @throws if it is not reached, or nobody can see that it has the focus */
  async reach(target: Locator): Promise<void> {
    await target.waitFor()
    let turns = 0
    let before = ''
    for (let stops = 0; stops < STOPS_MAX && turns < TURNS_MAX; stops++) {
      const where = await target.evaluate(WHERE)
      if (where === 'here') {
        const unseen = await target.evaluate(UNSEEN)
        if (unseen !== '') throw new Error(`${target} has the focus, ${unseen}`)
        return
      }
      if (before !== '' && where !== before) turns++
      before = where
      await this.#page.keyboard.press(where === 'before' ? 'Shift+Tab' : 'Tab')
    }
    throw new Error(`Tab does not lead to ${target}; the focus is on ${await this.focused()}`)
  }

  async press(...keys: readonly string[]): Promise<void> {
    for (const key of keys) await this.#page.keyboard.press(key)
  }

  /** Presses a button, or follows a link. */
  async use(target: Locator, key = 'Enter'): Promise<void> {
    await this.reach(target)
    await this.press(key)
  }

  /** Puts the text in place of what stands in the field. */
  async type(field: Locator, text: string): Promise<void> {
    await this.reach(field)
    await this.press('Control+A', 'Delete')
    await this.#page.keyboard.type(text)
  }

  /** Goes through the options of a closed list by arrows. */
  async choose(list: Locator, value: string): Promise<void> {
    await this.reach(list)
    await this.press('Home')
    const options = await list.locator('option').count()
    for (let at = 0; (await list.inputValue()) !== value; at++) {
      if (at === options) throw new Error(`${value} is no option of ${list}`)
      await this.press('ArrowDown')
    }
  }

  /** Waits until the control has the focus. */
  async isAt(target: Locator): Promise<void> {
    await target.and(this.#page.locator(':focus')).waitFor()
  }

  /** The element that has the focus, for messages. */
  async focused(): Promise<string> {
    return await this.#page.evaluate<string>(NAME)
  }

  /** Goes once around by Tab. @returns what cannot be reached; @throws if there is no way out */
  async missed(): Promise<string[]> {
    await this.#page.evaluate(`(() => {
      window.reached = new Set([document.activeElement])
      window.first = document.activeElement
      addEventListener('focusin', event => window.reached.add(event.target))
    })()`)
    for (let stops = 0; stops < STOPS_MAX; stops++) {
      await this.press('Tab')
      if (await this.#page.evaluate<boolean>('document.activeElement === window.first')) {
        return await this.#page.evaluate<string[]>(
          `${STOPS}.filter(element => !window.reached.has(element)).map(element => element.outerHTML.slice(0, 120))`,
        )
      }
    }
    throw new Error(`Tab does not come around: the focus is on ${await this.focused()}`)
  }
}

/** Pixels of the window. A notebook every day; with `WIDTHS`, as heavy tests do, a telephone and a wide screen. */
export const WIDTHS: readonly number[] = (process.env['WIDTHS'] ?? '1280').split(',').map(Number)
export const VIEWS = [
  ['home', 'Home'],
  ['requests', 'Requests'],
  ['usage', 'Usage'],
  ['accounts', 'Keys and workspaces'],
  ['models', 'Models'],
  ['guardrails', 'Guardrails'],
  ['batches', 'Batches'],
  ['playground', 'Playground'],
  ['changes', 'Changes'],
] as const
const PROVIDER_KEY = 'good-key-of-the-gateway-4711'
/** The key of a credential, which the provider takes too. */
export const OWN_KEY = 'own-key-of-the-workspace-0815'

/** Begins a batch of one request. @returns its id */
export async function beginBatch({ gateway }: Pick<ConsoleWorld, 'gateway'>, model: string): Promise<string> {
  const reply = await fetch(`${gateway.url}/v1/batches`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      endpoint: '/v1/responses',
      model,
      requests: [{ custom_id: 'a', body: { input: 'Hello' } }],
    }),
  })
  if (reply.status !== 202) throw new Error(await reply.text())
  return ((await reply.json()) as { id: string }).id
}

export interface Walk {
  readonly visit: Visit
  readonly world: ConsoleWorld
  readonly keys: Keyboard
  readonly dialog: Locator
  /** The button of this name. */
  button(name: string | RegExp): Locator
  /** The row of a table with this text in its head. */
  row(table: string, head: string): Locator
  /** Goes to a view by its digit, or its link, and waits for the tab. */
  view(path: (typeof VIEWS)[number][0]): Promise<void>
  /** Looks at the place as it is now, light and dark. */
  look(name: string): Promise<void>
  /** Works the button that opens a dialog, looks at it, and leaves it by Escape: the button has the focus again. */
  peek(opener: Locator, name: string): Promise<void>
  /** Sends the form of the dialog; then the opener has the focus again. */
  send(name: string, opener: Locator | null): Promise<void>
}

/** A gateway with something in every view, and a provider that lists its models and never answers a request. */
export async function openWalk(t: Test) {
  const provider = createServer((request, response) => {
    request.resume()
    if (request.method === 'POST') return
    const isKnown = [PROVIDER_KEY, OWN_KEY].includes(
      String(request.headers.authorization).slice('Bearer '.length),
    )
    response.writeHead(isKnown ? 200 : 401, { 'content-type': 'application/json' })
    response.end(JSON.stringify(isKnown ? { object: 'list', data: [{ id: 'small' }] } : { error: {} }))
  })
  t.teardown(() => {
    provider.closeAllConnections()
    provider.close()
  })
  const { url } = await listening(provider)
  // Without known prices a budget would refuse them.
  const down = { provider: 'down', upstreamModel: 'any', pricing: {} }
  const sim = (upstreamModel: string, more: object = {}) => ({
    provider: 'sim',
    upstreamModel,
    pricing: {},
    ...more,
  })
  const { world, open } = await openConsole(t, {
    providers: [
      { slug: 'down', format: 'openai-responses', baseUrl: 'http://127.0.0.1:1/v1', apiKey: PROVIDER_KEY },
      { slug: 'silent', format: 'openai-chat', baseUrl: `${url}/v1`, apiKey: PROVIDER_KEY },
    ],
    models: [
      { id: 'test/slow', endpoints: [sim('write-300-200')] },
      { id: 'test/priced', endpoints: [sim('echo', { pricing: { request: '0.01' } })] },
      { id: 'test/falls-back', endpoints: [down, sim('echo')] },
      { id: 'test/down', endpoints: [down] },
      { id: 'test/silent', endpoints: [{ provider: 'silent', upstreamModel: 'small', pricing: {} }] },
      { id: 'silent/*', endpoints: [{ provider: 'silent', pricing: {} }] },
    ],
  })
  await fill(world)
  return { world, open }
}

async function fill(world: ConsoleWorld): Promise<void> {
  const { manage, respond } = world
  await beginBatch(world, 'sim/echo')
  await manage('POST', '/credits', { amount: 20 })
  await manage('POST', '/keys', { name: 'Website', limit: 5, limit_reset: 'daily' })
  await manage('POST', '/end-users', { user: 'ada' })
  const { list } = await manage('GET', '/guardrails')
  const id = String(list.find(guardrail => guardrail['is_workspace_default'] === true)?.['id'])
  await manage('PATCH', `/guardrails/${id}`, {
    content_filter_builtins: [{ slug: 'email', action: 'redact' }],
    limit_usd: 50,
    reset_interval: 'monthly',
  })
  // More changes than a page has.
  for (let at = 0; at < 60; at++) await manage('PATCH', '/end-users?user=ada', { weight: (at % 2) + 1 })
  await respond({
    model: 'test/priced',
    input: 'Write to ada@example.com',
    user: 'ada',
    session_id: 'session-7',
  })
  for (let at = 0; at < 55; at++) await respond({ model: 'test/priced', input: 'many' })
  for (const model of ['test/falls-back', 'test/down', 'test/down', 'sim/absent'])
    await respond({ model, input: 'x' })
  const isStored = async () => {
    const models = (await manage('GET', '/activity?dimensions=model')).list
    const requestsOf = (id: string) => models.find(({ model }) => model === id)?.['requests']
    return (
      requestsOf('test/priced') === 56 &&
      requestsOf('test/falls-back') === 1 &&
      Number(requestsOf('test/down')) > 0
    )
  }
  if (!(await eventually(isStored, 60_000))) throw new Error('the records are not stored')
}

export function walkOf(t: Test, visit: Visit, world: ConsoleWorld): Walk {
  const { page } = visit
  const keys = new Keyboard(page)
  const dialog = page.locator('dialog[open]')
  const button = (name: string | RegExp) => page.getByRole('button', { name, exact: true })
  const isClosed = () => page.locator('dialog.form').waitFor({ state: 'detached' })
  const look = async (name: string) => {
    for (const colorScheme of ['dark', 'light'] as const) {
      await page.emulateMedia({ colorScheme })
      if (WITHOUT_AXE === false) t.same(await findings(visit), [], `${name}, ${colorScheme}`)
    }
    t.equal(await pixelsTooWide(page), 0, `${name} is not too wide`)
  }
  return {
    visit,
    world,
    keys,
    dialog,
    button,
    look,
    row: (table, head) =>
      page
        .getByRole('table', { name: table, exact: true })
        .locator('tr', { has: page.getByRole('rowheader', { name: head, exact: true }) }),
    async view(path) {
      // In a field a digit is a digit.
      const isTyping = await page.evaluate<boolean>(
        `document.activeElement.matches('input, select, textarea')`,
      )
      if (isTyping) await keys.use(page.locator(`nav a[href="#/${path}"]`))
      else await keys.press(String(VIEWS.findIndex(([each]) => each === path) + 1))
      await page.locator(`nav a[href="#/${path}"][aria-current="page"]`).waitFor()
    },
    async peek(opener, name) {
      await keys.use(opener)
      await dialog.waitFor()
      await look(name)
      await keys.press('Escape')
      await isClosed()
      await keys.isAt(opener)
    },
    async send(name, opener) {
      await keys.use(dialog.getByRole('button', { name, exact: true }))
      await isClosed()
      if (opener !== null) await keys.isAt(opener)
    },
  }
}
