/** Asks for a management key, and verifies it before anything is shown. */
import { Calls } from './calls.js'
import { html, useEffect, useRef, useState } from './html.js'
import { Wordmark } from './wordmark.js'

export function SignIn({ told, onCalls, onRefused }) {
  const [message, setMessage] = useState(told)
  const [busy, setBusy] = useState(false)
  const input = useRef(null)

  useEffect(() => input.current?.focus(), [])

  const send = async event => {
    event.preventDefault()
    setBusy(true)
    const key = input.current.value.trim()
    // A key with other characters cannot be sent at all.
    const calls = new Calls(/^[\x21-\x7e]*$/.test(key) ? key : '', () => undefined)
    try {
      await calls.view('process')
      onCalls(new Calls(key, onRefused))
    } catch (error) {
      setMessage(error.name === 'Refused' ? error.message : 'The gateway does not answer')
      setBusy(false)
    }
  }

  return html`
    <main class="sign-in">
      <h1><${Wordmark} /> console</h1>
      <form onSubmit=${send}>
        <label>
          <span>Management key</span>
          <input
            ref=${input}
            type="password"
            required
            autocomplete="off"
            spellcheck=${false}
            aria-describedby="sign-in-help"
            placeholder="sk-gw-mgmt-…"
          />
        </label>
        <button type="submit" class="main" disabled=${busy}>Open</button>
      </form>
      ${message !== '' && html`<p class="fault" role="alert">${message}</p>`}
      <p id="sign-in-help" class="dim">
        The first start prints one; GATEWAY_MANAGEMENT_KEY sets one. It stays in the memory of this tab, and a reload asks
        for it again.
      </p>
      <p class="dim"><a href="/docs">Reference</a> · <a href="/metrics">Metrics</a> · <a href="/">Admin port</a></p>
    </main>
  `
}
