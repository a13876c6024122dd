/** The wordmark: water through a gate, and the name. */
import { html } from './html.js'

export function Wordmark() {
  return html`
    <span class="wordmark">
      <svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" focusable="false">
        <path d="M4 3v18M20 3v18M4 7h16" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" />
        <path
          d="M4 13c2.7-2.2 5.3-2.2 8 0s5.3 2.2 8 0M4 18c2.7-2.2 5.3-2.2 8 0s5.3 2.2 8 0"
          fill="none"
          stroke="var(--accent)"
          stroke-width="2.4"
          stroke-linecap="round"
        />
      </svg>
      sluice
    </span>
  `
}
