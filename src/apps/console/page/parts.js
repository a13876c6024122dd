/** Parts that several views share: tables, figures, pages, filters, and hooks that fetch what a view shows. */
import { percent, usd } from './format.js'
import { html, useEffect, useLayoutEffect, useRef, useState } from './html.js'

/** A coloured word, whose meaning does not depend on the colour. `tone`: good, warn, bad or plain. */
export function Chip({ tone = 'plain', title, children }) {
  return html`<span class=${`chip ${tone}`} title=${title}>${children}</span>`
}

/** A button in a row. `of`: the subject of the row, for screen readers. */
export function RowButton({ does, of, ...rest }) {
  return html`<button type="button" aria-label=${`${does} ${of}`} ...${rest}>${does}</button>`
}

/** The text instead of an empty list: what to do first. */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`
}

/**
 * A table that scrolls sideways if necessary. `columns`: texts, or { name, number, sorted, onSort }. Empty names are
 * columns of buttons.
 */
export function Table({ label, columns, children }) {
  const frame = useRef(null)
  const focusedElement = useRef(null)
  // The button's row may disappear; the next Tab should not begin at the top of the page.
  useLayoutEffect(() => {
    if (focusedElement.current === null || focusedElement.current.isConnected) return
    focusedElement.current = null
    if (document.activeElement === document.body) frame.current.focus({ preventScroll: true })
  })
  return html`
    <div
      ref=${frame}
      class="frame"
      role="group"
      aria-label=${label}
      tabindex="0"
      onFocusIn=${event => {
        focusedElement.current = event.target
      }}
      onFocusOut=${event => {
        if (event.relatedTarget !== null) focusedElement.current = null
      }}
    >
      <table aria-label=${label}>
        <thead>
          <tr>
            ${columns.map(column => {
              const {
                name,
                number = false,
                sorted = false,
                onSort,
              } = typeof column === 'string' ? { name: column } : column
              if (name === '') return html`<td key="buttons"></td>`
              return html`
                <th scope="col" key=${name} class=${number ? 'number' : ''} aria-sort=${sorted ? 'descending' : undefined}>
                  ${onSort === undefined ? name : html`<button type="button" class="sort" onClick=${onSort}>${name}</button>`}
                </th>
              `
            })}
          </tr>
        </thead>
        <tbody>${children}</tbody>
      </table>
    </div>
  `
}

/** A value with its name, for the top of a view. */
export function Figure({ name, value, title, note = '' }) {
  return html`
    <div class="figure" title=${title}>
      <dt>${name}</dt>
      <dd>${value}${note !== '' && html`<small>${note}</small>`}</dd>
    </div>
  `
}

/** The used part of a money limit. `reset`: when it starts again; null: never. */
export function Share({ limit, left, reset, label }) {
  const share = limit === 0 ? 1 : Math.min(1, Math.max(0, 1 - left / limit))
  const tone = share >= 1 ? 'bad' : share >= 0.8 ? 'warn' : 'good'
  return html`
    <span class="budget">
      <meter min="0" max="1" low="0.8" high="0.999" optimum="0" value=${share} class=${tone} aria-label=${label}></meter>
      ${' '}${percent(share)} of ${usd(limit)}${reset === null ? '' : ` ${reset}`}
    </span>
  `
}

/** Shows the reason why a view has no data, or that it is loading. */
export function Waiting({ error, once = false }) {
  if (error === null) return html`<p class="empty" role="status">Loading …</p>`
  return html`<p class="fault" role="alert">${error.message}${once ? '' : '. The page keeps trying.'}</p>`
}

/**
 * The document of a view, requested again and again while it is shown.
 * @returns the last document or null, and the error of the last try or null
 */
export function useView(calls, name, query = {}, everyMs = 5_000) {
  const address = `${name}?${new URLSearchParams(query)}`
  return usePolled(signal => calls.view(name, query, signal), [calls, address, everyMs], everyMs)
}

/**
 * The document of a management operation. A changed `version` requests it again; with null as `path`, it is not
 * requested.
 */
export function useApi(calls, path, query = {}, { version = 0, everyMs = null } = {}) {
  const address = path === null ? '' : `${path}?${new URLSearchParams(query)}`
  const ask = path === null ? null : signal => calls.api('GET', path, { query, signal })
  return usePolled(ask, [calls, address, version, everyMs], everyMs)
}

/** Requests at once, and then every `everyMs`; null: only once. An earlier answer never replaces a later one. */
function usePolled(ask, dependencies, everyMs) {
  const [state, setState] = useState({ document: null, error: null, isAsking: true })
  useEffect(() => {
    if (ask === null) return undefined
    const controller = new AbortController()
    let timer
    const poll = async () => {
      try {
        setState(before => ({ ...before, isAsking: true }))
        const document = await ask(controller.signal)
        if (!controller.signal.aborted) setState({ document, error: null, isAsking: false })
      } catch (error) {
        if (!controller.signal.aborted) setState(before => ({ ...before, error, isAsking: false }))
      }
      if (!controller.signal.aborted && everyMs !== null) timer = setTimeout(poll, everyMs)
    }
    void poll()
    return () => {
      controller.abort()
      clearTimeout(timer)
    }
  }, dependencies)
  return state
}

/** Rows of one page of a list. */
export const PAGE = 50

/** A page of a list from `useApi` or `useView`, rendered by `draw`, with buttons for the other pages. */
export function Paged({ asked: { document, error }, once = false, draw, ...pages }) {
  if (document === null) return html`<${Waiting} error=${error} once=${once} />`
  return html`${draw(document)}<${Pages} total=${document.total_count} ...${pages} />`
}

/** Buttons for the pages of a list. */
export function Pages({ label, offset, total, onOffset }) {
  if (total <= PAGE) return null
  const last = Math.min(offset + PAGE, total)
  return html`
    <nav class="pages" aria-label=${`Pages of ${label}`}>
      <button type="button" disabled=${offset === 0} onClick=${() => onOffset(Math.max(0, offset - PAGE))}>
        Back
      </button>
      <span>${offset + 1} to ${last} of ${total}</span>
      <button type="button" disabled=${last >= total} onClick=${() => onOffset(offset + PAGE)}>More</button>
    </nav>
  `
}

/** The filter of a view; the key / focuses it. */
export function Filter({ label, hint, value, onValue }) {
  const input = useRef(null)
  return html`
    <label class="filter">
      <span>${label}</span>
      <input
        ref=${input}
        type="search"
        data-filter
        autocomplete="off"
        spellcheck=${false}
        placeholder=${hint}
        value=${value}
        onInput=${event => onValue(event.currentTarget.value)}
      />
    </label>
  `
}

/** True for keys that are part of typed text. */
export function isTyping({ target }) {
  return target instanceof HTMLElement && target.matches('input:not([type=checkbox]), textarea, select')
}
