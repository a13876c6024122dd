/** Re-exports the template and hook functions of the view library. Every value in a template is text, never markup. */
import htm from 'htm'
import { h } from 'preact'

export { render } from 'preact'
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'

// The package's types describe another module format.
export const html = /** @type {any} */ (htm).bind(h)
