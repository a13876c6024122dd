/** The console: signs in, follows the live list, and shows the view in the URL. */
import { Accounts } from './access/accounts.js'
import { Batches } from './batches.js'
import { Changes } from './changes.js'
import { Models } from './endpoints.js'
import { count } from './format.js'
import { Guardrails } from './guardrails/guardrails.js'
import { Home } from './home/home.js'
import { html, render, useEffect, useRef, useState } from './html.js'
import { Live } from './live.js'
import { Chip, isTyping, useView } from './parts.js'
import { Playground } from './playground/playground.js'
import { Requests } from './requests/requests.js'
import { Rollouts } from './rollouts.js'
import { SignIn } from './sign-in.js'
import { Usage } from './usage/usage.js'
import { Wordmark } from './wordmark.js'

/** Views by URL fragment, in the order of the tabs. The keys 1 to 9 open the first nine. */
const VIEWS = [
  { path: 'home', name: 'Home', view: Home },
  { path: 'requests', name: 'Requests', view: Requests },
  { path: 'usage', name: 'Usage', view: Usage },
  { path: 'accounts', name: 'Keys and workspaces', view: Accounts },
  { path: 'models', name: 'Models', view: Models },
  { path: 'guardrails', name: 'Guardrails', view: Guardrails },
  { path: 'batches', name: 'Batches', view: Batches },
  { path: 'playground', name: 'Playground', view: Playground },
  { path: 'changes', name: 'Changes', view: Changes },
  { path: 'rollouts', name: 'Rollouts', view: Rollouts },
]
/** Old fragments of renamed views. */
const RENAMED_VIEWS = { try: 'playground' }

const SHORTCUTS = [
  ['1 … 9', 'views'],
  ['j, ↓', 'next request'],
  ['k, ↑', 'previous request'],
  ['←, →', 'values of a chart that has the focus'],
  ['Enter', 'details'],
  ['Esc', 'close details, leave the filter'],
  ['/', 'filter'],
  ['?', 'this help'],
]

function App() {
  const [calls, setCalls] = useState(null)
  const [notice, setNotice] = useState('')
  const refuse = () => {
    setNotice(calls?.isSession ? 'Your session has expired. Sign in again.' : 'The key is no longer valid.')
    setCalls(null)
  }
  const leave = async () => {
    setNotice('')
    if (calls.isSession) await calls.sign('sign-out').catch(() => undefined)
    setCalls(null)
  }
  if (calls === null) return html`<${SignIn} told=${notice} onCalls=${setCalls} onRefused=${refuse} />`
  return html`<${Console} calls=${calls} onLeave=${leave} onRefused=${refuse} />`
}

function Console({ calls, onLeave, onRefused }) {
  const [tick, setTick] = useState(0)
  const [path, setPath] = useState(pathOfAddress())
  const [live, setLive] = useState(null)
  const help = useRef(null)
  // The state of views that are not shown.
  const memory = useRef({})

  useEffect(() => {
    const liveList = new Live(calls, () => setTick(now => now + 1))
    // Charts advance even if there are no requests.
    const timer = setInterval(() => setTick(now => now + 1), 2_000)
    setLive(liveList)
    return () => {
      clearInterval(timer)
      liveList.close()
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

  const { name, view } = VIEWS.find(candidate => candidate.path === path) ?? VIEWS[0]
  useEffect(() => {
    document.title = `${name} · Sluice console`
  }, [name])
  if (live === null) return null
  return html`
    <header class="top">
      <h1><a href="#/home"><${Wordmark} /></a></h1>
      <nav aria-label="Views">
        ${VIEWS.map(item => {
          const current = item.path === path ? 'page' : undefined
          return html`<a key=${item.path} href=${`#/${item.path}`} aria-current=${current}>${item.name}</a>`
        })}
      </nav>
      <${State} calls=${calls} live=${live} />
      <p class="ways">
        <a href="/docs" target="_blank">API reference</a> <a href="/guide" target="_blank">Guide</a>
      </p>
      <button type="button" aria-label="Keyboard help" onClick=${() => help.current.showModal()}>?</button>
      <button type="button" onClick=${onLeave}>Sign out</button>
    </header>
    <main>
      <${view} key=${path} calls=${calls} live=${live} tick=${tick} memory=${memory.current} asked=${queryOfAddress()} />
    </main>
    <dialog ref=${help} aria-labelledby="help-heading">
      <h2 id="help-heading">Keyboard</h2>
      <dl class="facts">
        ${SHORTCUTS.map(([keys, meaning]) => html`<dt key=${keys}><kbd>${keys}</kbd></dt><dd>${meaning}</dd>`)}
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
    facts === null ? [] : [facts.unreadyReason, ...facts.degraded].filter(reason => reason !== null)
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
  const [, path = ''] = /^#\/?([a-z]*)/.exec(location.hash) ?? []
  const currentPath = RENAMED_VIEWS[path] ?? path
  return VIEWS.some(candidate => candidate.path === currentPath) ? currentPath : VIEWS[0].path
}

/** The text after the question mark of the fragment, such as a filter. */
function queryOfAddress() {
  const queryStart = location.hash.indexOf('?')
  try {
    return queryStart === -1 ? '' : decodeURIComponent(location.hash.slice(queryStart + 1))
  } catch {
    // The URL was written by hand.
    return ''
  }
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
    const field = document.querySelector('[data-filter]')
    if (field instanceof HTMLElement) field.focus()
    event.preventDefault()
  }
}

render(html`<${App} />`, document.getElementById('console'))
