import { render } from "preact";
import { App } from "./app";
import { followLinks } from "./lib/router";
import { followSystem } from "./lib/settings";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/data.css";
import "./styles/records.css";

followSystem();
followLinks();
const root = document.getElementById("app");
if (root) render(<App />, root);
