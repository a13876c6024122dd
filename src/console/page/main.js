/** The console: signs in, follows the live list, and shows the view that the URL names. */
import { Accounts } from './accounts.js'
import { Batches } from './batches.js'
import { count } from './format.js'
import { Guardrails } from './guardrails.js'
import { html, render, useEffect, useRef, useState } from './html.js'
import { Live } from './live.js'
import { Models } from './models.js'
import { Chip, isTyping, useView } from './parts.js'
import { Requests } from './requests.js'
import { SignIn } from './sign-in.js'
import { Trial } from './trial.js'

/** Views by the fragment of the address, in the order of the tabs; the digit of its place leads to each. */
const VIEWS = [
  { path: 'requests', name: 'Requests', view: Requests },
  { path: 'models', name: 'Models', view: Models },
  { path: 'accounts', name: 'Keys and users', view: Accounts },
  { path: 'guardrails', name: 'Guardrails', view: Guardrails },
  { path: 'batches', name: 'Batches', view: Batches },
  { path: 'try', name: 'Try it', view: Trial },
]

const SHORTCUTS = [
  ['1 … 6', 'views'],
  ['j, ↓', 'next request'],
  ['k, ↑', 'request before'],
  ['Enter', 'details'],
  ['Esc', 'close details, leave the filter'],
  ['/', 'filter'],
  ['?', 'this help'],
]

function App() {
  const [calls, setCalls] = useState(null)
  const [told, setTold] = useState('')
  const refuse = () => {
    setTold('The key is no longer valid.')
    setCalls(null)
  }
  if (calls === null) return html`<${SignIn} told=${told} onCalls=${setCalls} onRefused=${refuse} />`
  return html`<${Console} calls=${calls} onLeave=${() => setCalls(null)} onRefused=${refuse} />`
}

function Console({ calls, onLeave, onRefused }) {
  const [tick, setTick] = useState(0)
  const [path, setPath] = useState(pathOfAddress())
  const [live, setLive] = useState(null)
  const help = useRef(null)
  // What a view keeps while another one is shown.
  const memory = useRef({})

  useEffect(() => {
    const followed = new Live(calls, () => setTick(now => now + 1))
    // Charts move on even when no request comes.
    const timer = setInterval(() => setTick(now => now + 1), 2_000)
    setLive(followed)
    return () => {
      clearInterval(timer)
      followed.close()
    }
  }, [calls])

  useEffect(() => {
    if (live?.state === 'refused') onRefused()
  }, [live?.state])

  useEffect(() => {
    const onAddress = () => setPath(pathOfAddress())
    const onKey = event => onShortcut(event, help.current)
    addEventListener('hashchange', onAddress)
    addEventListener('keydown', onKey)
    return () => {
      removeEventListener('hashchange', onAddress)
      removeEventListener('keydown', onKey)
    }
  }, [])

  const { name, view } = VIEWS.find(each => each.path === path) ?? VIEWS[0]
  useEffect(() => {
    document.title = `${name} · Sluice console`
  }, [name])
  if (live === null) return null
  return html`
    <header class="top">
      <h1><a href="/">Sluice</a></h1>
      <nav aria-label="Views">
        ${VIEWS.map(each => {
          const current = each.path === path ? 'page' : undefined
          return html`<a key=${each.path} href=${`#/${each.path}`} aria-current=${current}>${each.name}</a>`
        })}
      </nav>
      <${State} calls=${calls} live=${live} />
      <button type="button" aria-label="Keyboard help" onClick=${() => help.current.showModal()}>?</button>
      <button type="button" onClick=${onLeave}>Leave</button>
    </header>
    <main>
      <${view} key=${path} calls=${calls} live=${live} tick=${tick} memory=${memory.current} />
    </main>
    <dialog ref=${help} aria-labelledby="help-heading">
      <h2 id="help-heading">Keyboard</h2>
      <dl class="facts">
        ${SHORTCUTS.map(([keys, what]) => html`<dt key=${keys}><kbd>${keys}</kbd></dt><dd>${what}</dd>`)}
      </dl>
      <form method="dialog"><button type="submit">Close</button></form>
    </dialog>
  `
}

const LIVE_TONES = { live: 'good', connecting: 'plain', lost: 'bad', refused: 'bad' }

/** The state of the process and of the live list. */
function State({ calls, live }) {
  const { document: facts } = useView(calls, 'process')
  const problems =
    facts === null ? [] : [facts.unreadyReason, ...facts.degraded].filter(each => each !== null)
  return html`
    <p class="state" role="status">
      <${Chip} tone=${LIVE_TONES[live.state]}>${live.state}<//>
      ${problems.map(problem => html` <${Chip} key=${problem} tone="bad">${problem}<//>`)}
      ${
        facts !== null &&
        html` <span class="dim" title=${`Sluice ${facts.version}`}>
          ${count(facts.inFlight)} running, ${count(facts.openStreams)} streams
        </span>`
      }
    </p>
  `
}

function pathOfAddress() {
  const path = location.hash.replace(/^#\/?/, '')
  return VIEWS.some(each => each.path === path) ? path : VIEWS[0].path
}

function onShortcut(event, help) {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  if (
    event.key === 'Escape' &&
    event.target instanceof HTMLElement &&
    event.target.matches('[data-filter]')
  ) {
    event.target.blur()
    return
  }
  if (isTyping(event) || help.open) return
  const view = VIEWS[Number(event.key) - 1]
  if (/^\d$/.test(event.key) && view !== undefined) location.hash = `#/${view.path}`
  else if (event.key === '?') help.showModal()
  else if (event.key === '/') {
    document.querySelector('[data-filter]')?.focus()
    event.preventDefault()
  }
}

render(html`<${App} />`, document.getElementById('console'))
