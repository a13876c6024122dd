/** Asks for a management key, or leads to the sign-in provider, and verifies the key before anything is shown. */
import { Calls } from './calls.js'
import { html, useEffect, useRef, useState } from './html.js'
import { Wordmark } from './wordmark.js'

export function SignIn({ told, onCalls, onRefused }) {
  const [message, setMessage] = useState(told)
  const [busy, setBusy] = useState(false)
  const [isOffered, setIsOffered] = useState(false)
  const input = useRef(null)

  useEffect(() => {
    input.current?.focus()
    const calls = new Calls(null, onRefused)
    const find = async () => {
      const { sign_in, signed_in } = await calls.view('session')
      setIsOffered(sign_in)
      if (signed_in !== null) onCalls(calls)
    }
    // Without an answer, the form for a key is shown.
    find().catch(() => undefined)
  }, [])

  const leave = async () => {
    setBusy(true)
    try {
      const { url } = await new Calls(null, () => undefined).sign('sign-in')
      location.assign(url)
    } catch (error) {
      showError(error)
    }
  }

  const showError = error => {
    setMessage(error.name === 'Refused' ? error.message : 'The gateway does not answer')
    setBusy(false)
  }

  const send = async event => {
    event.preventDefault()
    setBusy(true)
    const key = input.current.value.trim()
    // A key with other characters cannot be sent.
    const calls = new Calls(/^[\x21-\x7e]*$/.test(key) ? key : '', () => undefined)
    try {
      await calls.view('process')
      onCalls(new Calls(key, onRefused))
    } catch (error) {
      showError(error)
    }
  }

  return html`
    <main class="sign-in">
      <h1><${Wordmark} /> console</h1>
      ${
        isOffered &&
        html`<p><button type="button" class="main" disabled=${busy} onClick=${leave}>Sign in</button></p>
          <p class="dim">or with a management key:</p>`
      }
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
        The first start prints one or writes it to the file first-keys; GATEWAY_MANAGEMENT_KEY sets one. It stays in the
        memory of this tab, and a reload asks for it again.
      </p>
      <p class="dim"><a href="/docs">Reference</a> · <a href="/metrics">Metrics</a> · <a href="/">Admin port</a></p>
    </main>
  `
}
