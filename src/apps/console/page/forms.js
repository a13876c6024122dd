/** Forms in dialogs: fields, errors from the gateway, and confirmation before something is deleted. */
import { html, useEffect, useRef, useState } from './html.js'

/** The element that opened the last dialog. A dialog that follows immediately has the same opener. */
let lastOpener = /** @type {Element} */ (document.body)

/** A dialog that opens with its view. The element that had the focus gets it back when the dialog ends. */
function useModal() {
  const dialog = useRef(null)
  useEffect(() => {
    if (document.activeElement !== document.body) lastOpener = document.activeElement
    const opener = lastOpener
    dialog.current.showModal()
    // Elements behind an open dialog cannot have the focus.
    return () => queueMicrotask(() => opener instanceof HTMLElement && opener.focus())
  }, [])
  return dialog
}

/**
 * A dialog with a form. `onSend` gets the values by field name, and may throw; its message is shown. `done` is called
 * on success. `stays`: the form can be sent again.
 */
export function FormDialog({
  title,
  send,
  leave = 'Cancel',
  tone = 'main',
  stays = false,
  disabled = false,
  onSend,
  onClose,
  children,
}) {
  const dialog = useModal()
  const [fault, setFault] = useState('')
  const [busy, setBusy] = useState(false)
  const submit = async event => {
    event.preventDefault()
    if (busy) return
    setBusy(true)
    setFault('')
    try {
      await onSend(valuesOf(event.currentTarget))
      if (stays) setBusy(false)
    } catch (error) {
      setFault(error.message)
      setBusy(false)
    }
  }
  return html`
    <dialog ref=${dialog} class="form" aria-label=${title} onClose=${onClose}>
      <form onSubmit=${submit}>
        <h2>${title}</h2>
        ${children}
        ${fault !== '' && html`<p class="fault" role="alert">${fault}</p>`}
        <p class="buttons">
          <button type="button" onClick=${() => dialog.current.close()}>${leave}</button>
          <button type="submit" class=${tone} disabled=${disabled} aria-disabled=${busy}>${send}</button>
        </p>
      </form>
    </dialog>
  `
}

/** The texts of all named fields; true or false for checkboxes. */
function valuesOf(form) {
  const values = {}
  for (const field of form.elements) {
    if (field.name === '' || field.disabled) continue
    values[field.name] = field.type === 'checkbox' ? field.checked : field.value
  }
  return values
}

/**
 * A field with its label. Further attributes go to the input. Without a listener, `value` is only the initial value:
 * the view may be rendered again while the user types.
 */
export function Field({ label, hint, children, value, ...rest }) {
  const isOwn = rest.onInput === undefined && rest.onChange === undefined
  const begin = isOwn ? { defaultValue: value } : { value }
  const hintId = hint === undefined ? undefined : `hint-${label.replaceAll(/\W+/g, '-')}`
  return html`
    <div class="field">
      <label>
        <span>${label}</span>
        ${children ?? html`<input autocomplete="off" spellcheck=${false} aria-describedby=${hintId} ...${begin} ...${rest} />`}
      </label>
      ${hint !== undefined && html`<small id=${hintId} class="dim">${hint}</small>`}
    </div>
  `
}

/** `options`: texts, or pairs of value and text. */
export function Select({ name, value, options, ...rest }) {
  return html`
    <select name=${name} ...${rest}>
      ${options.map(option => {
        const [optionValue, text] = Array.isArray(option) ? option : [option, option]
        return html`<option key=${optionValue} value=${optionValue} selected=${optionValue === value}>${text}</option>`
      })}
    </select>
  `
}

export function Check({ label, checked, ...rest }) {
  const begin = rest.onChange === undefined ? { defaultChecked: checked } : { checked }
  return html`<label class="check"><input type="checkbox" ...${begin} ...${rest} /> ${label}</label>`
}

/** Asks for confirmation before something is deleted. */
export function Confirm({ title, send, children, onSend, onClose }) {
  return html`
    <${FormDialog} title=${title} send=${send} tone="danger" onSend=${onSend} onClose=${onClose}>
      <p>${children}</p>
    <//>
  `
}

/** Shows a secret once, with a button that copies it. */
export function Secret({ title, secret, onClose }) {
  const dialog = useModal()
  const [copied, setCopied] = useState('')
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(secret)
      setCopied('Copied')
    } catch {
      // Pages from another machine without TLS have no clipboard access.
      getSelection().selectAllChildren(dialog.current.querySelector('output'))
      setCopied('Selected: press Ctrl-C to copy')
    }
  }
  return html`
    <dialog ref=${dialog} class="form" aria-label=${title} onClose=${onClose}>
      <h2>${title}</h2>
      <p>Copy the key now. It is shown only once; only its hash is stored.</p>
      <output class="secret mono">${secret}</output>
      <p role="status" class="dim">${copied}</p>
      <p class="buttons">
        <button type="button" class="main" onClick=${copy}>Copy</button>
        <button type="button" onClick=${() => dialog.current.close()}>Close</button>
      </p>
    </dialog>
  `
}

/** The number in a field, or null if it is empty. */
export function numberOrNull(text) {
  return text.trim() === '' ? null : Number(text)
}

/** Lines or comma-separated words as a list, or null if there are none. */
export function listOrNull(text) {
  const items = text
    .split(/[\n,]/)
    .map(item => item.trim())
    .filter(item => item !== '')
  return items.length === 0 ? null : items
}
