// A widget's module, kept as a string until the widget is drawn. See widget_module in esm.py.

const source = "the module";
const modules = (globalThis.labkitModules ||= new Map()); // source -> its module, one for all widgets of the page

function load() {
  if (!modules.has(source)) modules.set(source, import(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))));
  return modules.get(source);
}

export default { render: async (context) => (await load()).default.render(context) };
