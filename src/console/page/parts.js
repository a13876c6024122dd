/** Parts that several views share. */
import { html, useEffect, useRef, useState } from './html.js'

/** A word with a colour; the word alone says enough. `tone`: good, warn, bad or plain. */
export function Chip({ tone = 'plain', title, children }) {
  return html`<span class=${`chip ${tone}`} title=${title}>${children}</span>`
}

/** What to do where there is nothing yet. */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`
}

/** A table in a frame that scrolls sideways where it has to. `columns`: texts, or { name, number: true }. */
export function Table({ label, columns, children }) {
  return html`
    <div class="frame" role="region" aria-label=${label} tabindex="0">
      <table aria-label=${label}>
        <thead>
          <tr>
            ${columns.map(column => {
              const { name, number = false } = typeof column === 'string' ? { name: column } : column
              return html`<th scope="col" key=${name} class=${number ? 'number' : ''}>${name}</th>`
            })}
          </tr>
        </thead>
        <tbody>${children}</tbody>
      </table>
    </div>
  `
}

/** A figure with its name, for the top of a view. */
export function Figure({ name, value, title }) {
  return html`<div class="figure" title=${title}><dt>${name}</dt><dd>${value}</dd></div>`
}

/** Says why a view has no data, or that it is on its way. */
export function Waiting({ error }) {
  if (error === null) return html`<p class="empty" role="status">Reading …</p>`
  return html`<p class="fault" role="alert">${error.message}. It is asked again by itself.</p>`
}

/**
 * The document of a view, asked for again and again while it is shown.
 * @returns the last document or null, and the error of the last try or null
 */
export function useView(calls, name, query = {}, everyMs = 5_000) {
  const [state, setState] = useState({ document: null, error: null, asked: '' })
  const asked = `${name}?${new URLSearchParams(query)}`
  useEffect(() => {
    const leaving = new AbortController()
    let timer
    const ask = async () => {
      try {
        const document = await calls.view(name, query, leaving.signal)
        if (!leaving.signal.aborted) setState({ document, error: null, asked })
      } catch (error) {
        if (!leaving.signal.aborted) setState(before => ({ ...before, error }))
      }
      if (!leaving.signal.aborted) timer = setTimeout(ask, everyMs)
    }
    void ask()
    return () => {
      leaving.abort()
      clearTimeout(timer)
    }
  }, [calls, asked, everyMs])
  return state
}

/** Buttons to turn the pages of a list. */
export function Pages({ label, offset, limit, total, onOffset }) {
  if (total <= limit) return null
  const last = Math.min(offset + limit, total)
  return html`
    <nav class="pages" aria-label=${`Pages of ${label}`}>
      <button type="button" disabled=${offset === 0} onClick=${() => onOffset(Math.max(0, offset - limit))}>
        Back
      </button>
      <span>${offset + 1} to ${last} of ${total}</span>
      <button type="button" disabled=${last >= total} onClick=${() => onOffset(offset + limit)}>More</button>
    </nav>
  `
}

/** The filter of a view; the key / leads to it. */
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

/** True for keys that belong to a text that is being typed. */
export function isTyping({ target }) {
  return target instanceof HTMLElement && target.matches('input:not([type=checkbox]), textarea, select')
}
