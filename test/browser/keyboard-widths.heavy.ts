/** The console by the keyboard alone, in the windows of a telephone and of a wide screen. */
process.env['WIDTHS'] = '320,2560'
await import('./console-keyboard.test.ts')
await import('./console-keyboard-forms.test.ts')
